"""Whole units split in exact proportion: the largest-remainder method (Hamilton), ties by position."""

from collections.abc import Sequence


def apportion(total_units: int, numerators: Sequence[int]) -> tuple[int, ...]:
    """Split `total_units` in proportion to `numerators`; the parts sum to it exactly.

    Each part is its exact quota rounded down, or up for the largest remainders, earlier positions first among equals.
    All zero numerators: all zero parts, whatever the total.

    Raises:
        ValueError: a negative total or numerator.
    """
    if total_units < 0 or (numerators and min(numerators) < 0):
        raise ValueError("only a total and numerators of at least 0 can be apportioned")
    return apportion_whole(total_units, numerators, sum(numerators))


def apportion_whole(total_units: int, numerators: Sequence[int], whole: int) -> tuple[int, ...]:
    """`apportion`, for a caller that knows its numbers to be sound and their sum, `whole`."""
    if whole == 0:
        return (0,) * len(numerators)
    quotas = [divmod(total_units * numerator, whole) for numerator in numerators]
    parts = [quotient for quotient, _ in quotas]
    missing = total_units - sum(parts)
    if missing:
        remainders = [remainder for _, remainder in quotas]
        # Python's sort is stable, also in reverse: equal remainders stay in order of position.
        for position in sorted(range(len(parts)), key=remainders.__getitem__, reverse=True)[:missing]:
            parts[position] += 1
    return tuple(parts)


def apportion_bounded(
    total_units: int, lower_bounds: Sequence[int], *, slack: int, whole: int
) -> tuple[int, ...] | None:
    """What `apportion` gives for numerators of which only bounds are known, or None where these cannot tell.

    Each numerator n_i is within lower_bounds[i] ≤ n_i < lower_bounds[i] + `slack`, and they sum to `whole` exactly.
    A part is certain when both bounds have the same quotient; who is rounded up is certain when the remainders on
    both sides of the cut are further apart than the bounds.
    """
    if whole <= 0:
        return None
    blur = total_units * slack
    parts = []
    remainders = []
    for lower_bound in lower_bounds:
        quotient, remainder = divmod(total_units * lower_bound, whole)
        if remainder + blur > whole:
            return None
        parts.append(quotient)
        remainders.append(remainder)
    missing = total_units - sum(parts)
    if missing:
        order = sorted(range(len(parts)), key=remainders.__getitem__, reverse=True)
        if missing >= len(parts) or remainders[order[missing - 1]] - remainders[order[missing]] < blur:
            return None
        for position in order[:missing]:
            parts[position] += 1
    return tuple(parts)
