"""Jaccard@K, leave-one-out and chance, exactly."""

from fractions import Fraction
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.evaluation import (
    MatrixScores,
    Ranking,
    expected_jaccard_at_k,
    leave_one_out,
    mean_scores,
    score_matrix,
)

values_and_relevant = st.lists(st.integers(0, 3), min_size=1, max_size=6).flatmap(
    lambda values: st.tuples(
        st.just(values), st.sets(st.sampled_from(range(len(values))), min_size=1, max_size=len(values))
    )
)
matrices = st.integers(1, 5).flatmap(
    lambda sources: st.lists(
        st.lists(st.integers(0, 10_000), min_size=sources, max_size=sources), min_size=1, max_size=4
    )
)


def utility(supports: list[list[int]], weights: list[int], coalition: set[int]) -> int:
    return sum(
        weight * max((row[source] for source in coalition), default=0)
        for row, weight in zip(supports, weights, strict=True)
    )


def mean_over_all_draws(values: list[int], relevant: set[int]) -> Fraction:
    """Every K sources that a ranking with ties may put first, each draw as likely as another."""
    k = len(relevant)
    draws = [
        set(chosen)
        for chosen in combinations(range(len(values)), k)
        if min(values[source] for source in chosen)
        >= max((value for source, value in enumerate(values) if source not in chosen), default=0)
    ]
    return sum((Fraction(len(draw & relevant), len(draw | relevant)) for draw in draws), Fraction(0)) / len(draws)


@pytest.mark.parametrize(
    ("values", "relevant", "jaccard"),
    [
        ([5, 4, 0, 0], {0, 1}, Fraction(1)),
        ([5, 0, 4, 0], {0, 1}, Fraction(1, 3)),
        ([0, 0, 5, 4], {0, 1}, Fraction(0)),
        ([5, 1, 1, 0], {0, 1}, Fraction(2, 3)),
        ([0, 0], {0, 1}, Fraction(1)),
    ],
)
def test_worked_values_of_jaccard_at_k(values: list[int], relevant: set[int], jaccard: Fraction) -> None:
    assert expected_jaccard_at_k(values, relevant) == jaccard


@given(values_and_relevant)
def test_ties_count_with_their_expectation_over_all_draws(case: tuple[list[int], set[int]]) -> None:
    values, relevant = case
    assert expected_jaccard_at_k(values, relevant) == mean_over_all_draws(values, relevant)


@given(values_and_relevant, st.randoms(use_true_random=False))
def test_the_order_of_the_sources_decides_nothing(case: tuple[list[int], set[int]], random: Random) -> None:
    values, relevant = case
    order = list(range(len(values)))
    random.shuffle(order)
    permuted = [values[source] for source in order]
    assert expected_jaccard_at_k(permuted, {order.index(source) for source in relevant}) == expected_jaccard_at_k(
        values, relevant
    )


@pytest.mark.parametrize("relevant", [[], [2], [0, 0], [-1]])
def test_labels_that_name_no_source_are_refused(relevant: list[int]) -> None:
    with pytest.raises(ValueError, match="relevant"):
        expected_jaccard_at_k([1, 2], relevant)


@given(matrices, st.data())
def test_leave_one_out_is_the_loss_of_utility_without_the_source(
    supports: list[list[int]], data: st.DataObject
) -> None:
    weights = data.draw(st.lists(st.integers(1, 3), min_size=len(supports), max_size=len(supports)))
    everyone = set(range(len(supports[0])))
    assert leave_one_out(supports, weights, len(everyone)) == tuple(
        utility(supports, weights, everyone) - utility(supports, weights, everyone - {source}) for source in everyone
    )


def test_leave_one_out_overlooks_sources_that_say_the_same_where_credit_does_not() -> None:
    scores = score_matrix([[10_000, 10_000, 0, 0, 0]], [1], {0, 1}, 5).jaccard_at_k
    assert scores[Ranking.MAX_SUM] == 1
    assert scores[Ranking.LEAVE_ONE_OUT] == scores[Ranking.RANDOM] < 1


def test_without_key_points_every_ranking_is_chance() -> None:
    scores = score_matrix([], [], {0}, 4)
    assert set(scores.jaccard_at_k.values()) == {Fraction(1, 4)}
    assert scores.relevant_count == 1


def test_means_are_taken_ranking_by_ranking() -> None:
    scores = [MatrixScores({ranking: Fraction(value) for ranking in Ranking}, 1) for value in (0, 1, 1)]
    assert mean_scores(scores) == {ranking: Fraction(2, 3) for ranking in Ranking}
    assert mean_scores([]) == {}
