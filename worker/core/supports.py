"""What a support matrix may hold: decimals become integer units here, and anything else is refused by name."""

import re
from collections.abc import Hashable, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from itertools import chain
from math import gcd
from operator import countOf, itemgetter
from typing import NamedTuple

from worker.core.model import SUPPORT_SCALE

_QUANTUM = Decimal(1) / SUPPORT_SCALE
_DECIMAL_TEXT = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,9})?", re.ASCII)
_LAST = itemgetter(-1)
_CONTEXT = Context(prec=28)  # our own: a caller's decimal context must not change a number here


def support_units(support: str | float | Decimal) -> int:
    """A support within 0..1 in units of 10⁻⁴, rounded once, half to even.

    A float counts as the shortest decimal that reads back as it: the one a JSON document wrote.

    Raises:
        ValueError: outside 0..1 before rounding, NaN, infinite, a bool, or no number at all.
    """
    number = _decimal(support)
    if not 0 <= number <= 1:
        raise ValueError(f"{_shown(support)} is no support: it must lie within 0 and 1")
    rounded = number.quantize(_QUANTUM, rounding=ROUND_HALF_EVEN, context=_CONTEXT)
    return int(_CONTEXT.multiply(rounded, SUPPORT_SCALE))


class Matrix(NamedTuple):
    """A support matrix known to be sound.

    `rows` is the matrix as given, a row per key point; `ordered` has each row ascending; `weights` are the key points'
    weights over their greatest common divisor: only proportions matter, and small integers are fast.
    """

    rows: Sequence[Sequence[int]]
    ordered: Sequence[Sequence[int]]
    weights: Sequence[int]
    source_count: int


def checked_matrix(
    supports: Sequence[Sequence[int]], weights: Sequence[int] | None, owners: Sequence[Hashable | None] | None
) -> Matrix:
    """The matrix, once all of it is as it must be.

    Raises:
        ValueError: naming the first row, cell, weight or owner list that is not, and what it must be.
    """
    source_count = _source_count(supports, owners)
    # Counted in C, and looked at by its ends, so that the checks cost less than the sorting.
    if countOf(map(type, chain.from_iterable(supports)), int) != source_count * len(supports):
        raise ValueError(_bad_cell_of(supports))
    ordered = [sorted(row) for row in supports]
    if source_count and supports and (min(ordered)[0] < 0 or max(map(_LAST, ordered)) > SUPPORT_SCALE):
        raise ValueError(_bad_cell_of(supports))
    return Matrix(supports, ordered, _reduced_weights(weights, len(supports)), source_count)


def _source_count(supports: Sequence[Sequence[int]], owners: Sequence[Hashable | None] | None) -> int:
    """By the rows; without one, only `owners` can tell."""
    if not supports:
        return 0 if owners is None else len(owners)
    try:
        lengths = set(map(len, supports))
    except TypeError:
        raise ValueError("supports must be a list of rows, one per key point") from None
    if len(lengths) > 1:
        raise ValueError(_raggedness_of(supports))
    count = lengths.pop()
    if owners is not None and len(owners) != count:
        raise ValueError(f"owners has {len(owners)} entries for {count} sources: give one per source, null for none")
    return count


def _reduced_weights(weights: Sequence[int] | None, key_point_count: int) -> Sequence[int]:
    if weights is None:
        return [1] * key_point_count
    if len(weights) != key_point_count:
        raise ValueError(f"weights has {len(weights)} entries for {key_point_count} key points: give one per row")
    for index, weight in enumerate(weights):
        if type(weight) is not int or weight < 1:
            raise ValueError(f"weights[{index}] is {_shown(weight)}: a weight must be a positive integer")
    common = gcd(*weights)
    return weights if common == 1 else [weight // common for weight in weights]


def _raggedness_of(supports: Sequence[Sequence[int]]) -> str:
    index = next(index for index, row in enumerate(supports) if len(row) != len(supports[0]))
    cells = f"supports[{index}] has {len(supports[index])} cells, supports[0] has {len(supports[0])}"
    return f"{cells}: every row needs one per source"


def _bad_cell_of(supports: Sequence[Sequence[int]]) -> str:
    row_index, source_index, support = next(
        (row_index, source_index, support)
        for row_index, row in enumerate(supports)
        for source_index, support in enumerate(row)
        if type(support) is not int or not 0 <= support <= SUPPORT_SCALE
    )
    cell = f"supports[{row_index}][{source_index}] is {_shown(support)}"
    return f"{cell}: a support must be an int within 0 and {SUPPORT_SCALE}"


def _decimal(support: str | float | Decimal) -> Decimal:
    text = repr(support) if type(support) is float else str(support)
    known = type(support) in (str, int, float, Decimal)
    # The pattern keeps out NaN, infinity, spaces, underscores and digits of other scripts, which Decimal would take.
    if not known or not _DECIMAL_TEXT.fullmatch(text):
        raise ValueError(f"{_shown(support)} is no support: it must be a number within 0 and 1, like 0.7")
    return Decimal(text)


def _shown(value: object) -> str:
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
