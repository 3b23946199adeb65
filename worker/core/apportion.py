"""Whole units split in exact proportion: the largest-remainder method (Hamilton), ties by position."""

from collections.abc import Sequence


def apportion(total_units: int, numerators: Sequence[int]) -> tuple[int, ...]:
    """Split `total_units` in proportion to `numerators`; the parts sum to it exactly.

    Each part is its exact quota rounded down, or up for the largest remainders, earlier positions first among equals.
    All zero numerators: all zero parts, whatever the total.

    Raises:
        ValueError: a negative total or numerator.
    """
    whole = sum(numerators)
    if total_units < 0 or (numerators and min(numerators) < 0):
        raise ValueError("only a total and numerators of at least 0 can be apportioned")
    if whole == 0:
        return (0,) * len(numerators)
    parts = []
    remainders = []
    for numerator in numerators:
        quotient, remainder = divmod(total_units * numerator, whole)
        parts.append(quotient)
        remainders.append(remainder)
    missing = total_units - sum(parts)
    if missing:
        # Python's sort is stable, also in reverse: equal remainders stay in order of position.
        for position in sorted(range(len(parts)), key=remainders.__getitem__, reverse=True)[:missing]:
            parts[position] += 1
    return tuple(parts)
