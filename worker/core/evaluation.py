"""How well a ranking of sources agrees with human relevance labels, exactly and whatever the order of the sources."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import comb

from worker.core.credit import exact_credit


class Ranking(StrEnum):
    """What ranks the sources of one answer."""

    MAX_SUM = "max_sum"
    LEAVE_ONE_OUT = "leave_one_out"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class MatrixScores:
    """Jaccard@K of each ranking made from one answer's support matrix; K is the number of relevant sources."""

    jaccard_at_k: Mapping[Ranking, Fraction]
    relevant_count: int


def score_matrix(
    supports: Sequence[Sequence[int]], weights: Sequence[int], relevant: Collection[int], source_count: int
) -> MatrixScores:
    """Scores every ranking of the same matrix of shape (key points, sources); without key points all sources tie.

    Raises:
        ValueError: no relevant source, one outside the sources, or a matrix that credit refuses.
    """
    values: dict[Ranking, Sequence[int]] = {
        Ranking.MAX_SUM: exact_credit(supports, weights, owners=(None,) * source_count).numerators,
        Ranking.LEAVE_ONE_OUT: leave_one_out(supports, weights, source_count),
        Ranking.RANDOM: (0,) * source_count,
    }
    scores = {ranking: expected_jaccard_at_k(value, relevant) for ranking, value in values.items()}
    return MatrixScores(scores, len(relevant))


def leave_one_out(supports: Sequence[Sequence[int]], weights: Sequence[int], source_count: int) -> tuple[int, ...]:
    """U(N) − U(N∖i) of the max-sum utility for each source, times W · 10⁴; never clipped, it is never negative."""
    losses = [0] * source_count
    for row, weight in zip(supports, weights, strict=True):
        *_, second, best = (0, 0, *sorted(row))
        if best > second:
            losses[row.index(best)] += weight * (best - second)
    return tuple(losses)


def expected_jaccard_at_k(values: Sequence[int], relevant: Collection[int]) -> Fraction:
    """Jaccard index of the relevant sources and the K highest values, K = number of relevant sources.

    Sources that tie for the last places are drawn at random, and this is the exact expectation over all draws: the
    order of the sources decides nothing, and if all values tie it is what a random ranking reaches.

    Raises:
        ValueError: no relevant source, a repeated one, or one outside the values.
    """
    k = len(relevant)
    if not k or len(set(relevant)) != k or not set(relevant) <= set(range(len(values))):
        raise ValueError(f"relevant must name some of the {len(values)} sources, each once")
    last = sorted(values, reverse=True)[k - 1]
    above = {source for source, value in enumerate(values) if value > last}
    tied = {source for source, value in enumerate(values) if value == last}
    sure = len(above & set(relevant))
    places = k - len(above)
    return sum(
        (chance * _jaccard(sure + hits, k) for hits, chance in _draws(len(tied), len(tied & set(relevant)), places)),
        Fraction(0),
    )


def _draws(tied: int, relevant_tied: int, places: int) -> Iterator[tuple[int, Fraction]]:
    """How many relevant ones are among `places` drawn from `tied`, each with its chance (hypergeometric)."""
    for hits in range(min(places, relevant_tied) + 1):
        ways = comb(relevant_tied, hits) * comb(tied - relevant_tied, places - hits)
        yield hits, Fraction(ways, comb(tied, places))


def mean_scores(scores: Iterable[MatrixScores]) -> dict[Ranking, Fraction]:
    """The mean of each ranking over all answers; empty without answers."""
    rows = [score.jaccard_at_k for score in scores]
    return {ranking: sum((row[ranking] for row in rows), Fraction(0)) / len(rows) for ranking in Ranking if rows}


def _jaccard(hits: int, k: int) -> Fraction:
    """|A ∩ B| / |A ∪ B| for two sets of k elements with `hits` in common."""
    return Fraction(hits, 2 * k - hits)
