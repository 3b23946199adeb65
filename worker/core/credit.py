"""Exact Shapley credit of a support matrix, in integers: the same on every machine, bit for bit.

Cut each key point's support into layers, one between each two neighbouring levels of support; each layer is shared
equally by the sources that reach it (the airport game, Littlechild & Owen 1973). A policy says what a layer is worth
that r of them reach; grouping by owner shares it among owners first, then among the owner's sources (Owen 1977).
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from math import gcd, lcm
from operator import itemgetter
from typing import NamedTuple

from worker.core.apportion import apportion_bounded, apportion_whole
from worker.core.model import SUPPORT_SCALE, UNIT_SCALE
from worker.core.policy import MAX, Grouping, Policy, PolicyName
from worker.core.supports import Matrix, checked_matrix

Row = Sequence[int]

_LAYER_TABLES_MAX = 64
_ROUNDED_SCALE = 2**96

NARROW_SOURCES_MAX = 512
"""Up to here exact integers are narrow enough to be fast; beyond, rounded ones are tried first."""


class ExactCredit(NamedTuple):
    """φ_i = numerators[i] / denominator, exactly; their sum is the utility U(N)."""

    numerators: tuple[int, ...]
    denominator: int


class Credit(NamedTuple):
    """What each source earned, in units of 10⁻¹².

    Σ credit_units = utility_units; Σ share_units = 10¹², or 0 when nothing is supported;
    utility_units + residual_units = 10¹².
    """

    utility_units: int
    residual_units: int
    credit_units: tuple[int, ...]
    share_units: tuple[int, ...]


def compute_credit(
    supports: Sequence[Row],
    weights: Sequence[int] | None = None,
    *,
    owners: Sequence[Hashable | None] | None = None,
    policy: Policy = MAX,
    grouping: Grouping = Grouping.SOURCE,
) -> Credit:
    """Credit and shares of a support matrix of shape (key points, sources), cells in units of 10⁻⁴.

    utility_units = ⌊U(N)·10¹²⌋; credit_units apportion it, and share_units 10¹², in proportion to the exact φ by
    largest remainder, ties by the source's position. Without key points, sources or support all are 0 and the
    residual is 10¹².

    Args:
        supports: a row per key point; with no row at all, the number of sources is that of `owners`, else 0.
        weights: a positive integer per key point; 1 each when left out.
        owners: an owner per source; None is a union of its own. Matters under grouping `owner` alone.
        policy: how a key point's coverage is divided.
        grouping: who is counted, sources or owners.

    Raises:
        ValueError: a cell that is no int within 0..10,000, a ragged matrix, a bad weight, or owners of another length.
    """
    matrix = checked_matrix(supports, weights, owners)
    if matrix.source_count > NARROW_SOURCES_MAX and policy == MAX and grouping is Grouping.SOURCE:
        credit = _credit_from_rounded_layers(matrix)
        if credit is not None:
            return credit
    numerators, denominator = _exact_credit(matrix, owners if grouping is Grouping.OWNER else None, policy)
    whole = sum(numerators)
    utility_units = whole * UNIT_SCALE // denominator
    share_units = apportion_whole(UNIT_SCALE, numerators, whole)
    credit_units = share_units if utility_units == UNIT_SCALE else apportion_whole(utility_units, numerators, whole)
    return Credit(utility_units, UNIT_SCALE - utility_units, credit_units, share_units)


def exact_credit(
    supports: Sequence[Row],
    weights: Sequence[int] | None = None,
    *,
    owners: Sequence[Hashable | None] | None = None,
    policy: Policy = MAX,
    grouping: Grouping = Grouping.SOURCE,
) -> ExactCredit:
    """The exact φ behind `compute_credit`, from the same arguments, with the same errors."""
    matrix = checked_matrix(supports, weights, owners)
    return _exact_credit(matrix, owners if grouping is Grouping.OWNER else None, policy)


def _exact_credit(matrix: Matrix, owners: Sequence[Hashable | None] | None, policy: Policy) -> ExactCredit:
    factors = matrix.weights
    whole = sum(factors) * SUPPORT_SCALE
    if not (matrix.rows and matrix.source_count):
        return ExactCredit((0,) * matrix.source_count, 1)
    if owners is None:
        scale, layer_worths = _layer_table(policy, matrix.source_count)
        parts = _parts_by_source(matrix, layer_worths)
    else:
        scale, parts = _parts_by_owner(matrix, owners, policy)
    if policy.name is not PolicyName.MAX:
        # Beyond max a key point's parts sum to more than its coverage: its game is scaled to it.
        games = [sum(row) // scale for row in parts]
        factors, divisor = _coverage_factors(factors, [levels[-1] for levels in matrix.ordered], games)
        scale *= divisor
    return ExactCredit(_sums(parts, factors), whole * scale)


def _credit_from_rounded_layers(matrix: Matrix) -> Credit | None:
    """The units under `max` by source, or None where only the exact fractions can tell.

    lcm(1..m) has about 1.44 m bits, which makes the exact integers of thousands of sources slow. Here each part of a
    layer 10⁻⁴ thick is rounded down to a multiple of 2⁻⁹⁶. A key point's layers are at most 10⁴ thick together, so
    that a source's sum is less than Σ w_j · 10⁴ below the exact one; the exact total is known: Σ w_j · coverage_j.
    """
    layer_worths = [_ROUNDED_SCALE // reaching for reaching in range(matrix.source_count, 0, -1)]
    lower_bounds = _sums(_parts_by_source(matrix, layer_worths), matrix.weights)
    covered = sum(weight * levels[-1] for weight, levels in zip(matrix.weights, matrix.ordered, strict=True))
    slack = sum(matrix.weights) * SUPPORT_SCALE
    utility_units = covered * UNIT_SCALE // slack
    credit_units, share_units = (
        apportion_bounded(units, lower_bounds, slack=slack, whole=covered * _ROUNDED_SCALE)
        for units in (utility_units, UNIT_SCALE)
    )
    if credit_units is None or share_units is None:
        return None
    return Credit(utility_units, UNIT_SCALE - utility_units, credit_units, share_units)


def _parts_by_source(matrix: Matrix, layer_worths: Row) -> list[Row]:
    """What each source earns of each key point's unscaled game, in units of 10⁻⁴ / the scale of `layer_worths`."""
    if matrix.source_count == 1:
        return [[row[0] * layer_worths[0]] for row in matrix.rows]  # of one key, itemgetter makes no tuple
    heights = _heights(matrix.ordered, repeat(layer_worths))
    return [itemgetter(*row)(height_at) for row, height_at in zip(matrix.rows, heights, strict=True)]


def _parts_by_owner(matrix: Matrix, owners: Sequence[Hashable | None], policy: Policy) -> tuple[int, list[Row]]:
    """A scale, and as `_parts_by_source`: each layer is shared among the owners reaching it, then within each owner."""
    unions = _unions(owners)
    owner_scale, owner_worths = _layer_table(policy, len(unions))
    document_scale = lcm(*range(1, max(map(len, unions)) + 1))
    # An owner reaches a layer as soon as its best document does.
    bests = [sorted(max(row[source] for source in union) for union in unions) for row in matrix.rows]
    layer_worths = (
        [owner_worths[bisect_left(row_bests, level)] for level in levels]
        for row_bests, levels in zip(bests, matrix.ordered, strict=True)
    )
    heights = _heights(matrix.ordered, layer_worths)
    return owner_scale * document_scale, [
        _shared_within(unions, [height_at[support] for support in row], document_scale)
        for row, height_at in zip(matrix.rows, heights, strict=True)
    ]


def _heights(ordered: Sequence[Row], layer_worths: Iterable[Row]) -> list[dict[int, int]]:
    """Per key point, what a contributor earns that reaches a support: its parts of all the layers below.

    `ordered` has each row ascending; a row of `layer_worths` has one contributor's part of a layer 10⁻⁴ thick whose
    top is the support at the same place.
    """
    heights = []
    for levels, worths in zip(ordered, layer_worths, strict=False):
        height_at = {0: 0}
        height = below = 0
        for level, worth in zip(levels, worths):  # noqa: B905 - always as long; `strict` is felt in this innermost loop
            if level != below:
                height += (level - below) * worth
                height_at[level] = height
                below = level
        heights.append(height_at)
    return heights


def _shared_within(unions: Sequence[Sequence[int]], heights: Sequence[int], scale: int) -> list[int]:
    """Each owner's height shared among its own documents, layer by layer, in units of 1 / scale."""
    parts = [0] * len(heights)
    for union in unions:
        part = below = 0
        for rank, source in enumerate(sorted(union, key=heights.__getitem__)):
            part += (heights[source] - below) * (scale // (len(union) - rank))
            parts[source] = part
            below = heights[source]
    return parts


@lru_cache(maxsize=_LAYER_TABLES_MAX)
def _layer_table(policy: Policy, count: int) -> tuple[int, tuple[int, ...]]:
    """lcm(1..count), and times it g(r)/r for r = count, count - 1, …, 1: one contributor's part of a layer r reach."""
    scale = lcm(*range(1, count + 1))
    worths = policy.layer_worths(count)
    return scale, tuple(worths[reaching - 1] * (scale // reaching) for reaching in range(count, 0, -1))


def _coverage_factors(weights: Row, coverages: Row, games: Row) -> tuple[list[int], int]:
    """Integers f_j and one D with f_j / D = w_j · coverage_j / games_j; a key point without support has 0."""
    divisors = [gcd(weight * coverage, game) for weight, coverage, game in zip(weights, coverages, games, strict=True)]
    common = lcm(*(game // divisor for game, divisor in zip(games, divisors, strict=True) if game))
    return [
        weight * coverage * common // game if game else 0
        for weight, coverage, game in zip(weights, coverages, games, strict=True)
    ], common


def _sums(parts: Sequence[Row], factors: Row) -> tuple[int, ...]:
    """Each source's sum over key points, every row times its factor."""
    if max(factors) > 1:
        parts = [[factor * part for part in row] for row, factor in zip(parts, factors, strict=True)]
    return tuple(map(sum, zip(*parts, strict=True)))


def _unions(owners: Sequence[Hashable | None]) -> list[list[int]]:
    unions: dict[tuple[bool, Hashable], list[int]] = {}
    for source, owner in enumerate(owners):
        unions.setdefault((owner is None, source if owner is None else owner), []).append(source)
    return list(unions.values())
