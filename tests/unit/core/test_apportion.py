from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.brute_force import largest_remainder
from worker.core.apportion import apportion, apportion_bounded

totals = st.integers(0, 10**13)
numerators = st.lists(st.one_of(st.integers(0, 4), st.integers(0, 10**40)), max_size=12)


@given(totals, numerators)
def test_parts_are_what_hamiltons_method_gives_in_fractions(total: int, parts: list[int]) -> None:
    assert list(apportion(total, parts)) == largest_remainder(total, [Fraction(part) for part in parts])


@given(totals, numerators.filter(any))
def test_parts_sum_to_the_total_and_each_is_its_quota_rounded_down_or_up(total: int, parts: list[int]) -> None:
    split = apportion(total, parts)
    assert sum(split) == total
    quotas = [Fraction(total * part, sum(parts)) for part in parts]
    assert all(floor(quota) <= units < quota + 1 for units, quota in zip(split, quotas, strict=True))


@given(totals, numerators, st.integers(1, 10**20))
def test_only_proportions_matter(total: int, parts: list[int], factor: int) -> None:
    assert apportion(total, parts) == apportion(total, [part * factor for part in parts])


@pytest.mark.parametrize(
    ("total", "parts", "split"),
    [
        (10, [1, 1, 1], (4, 3, 3)),
        (2, [1, 1, 1], (1, 1, 0)),
        (10, [], ()),
        (10, [0, 0], (0, 0)),
        (0, [3, 1], (0, 0)),
        (7, [0, 5], (0, 7)),
        (100, [3, 3, 1], (43, 43, 14)),
    ],
)
def test_what_is_left_goes_to_the_largest_remainder_then_to_the_earlier_position(
    total: int, parts: list[int], split: tuple[int, ...]
) -> None:
    assert apportion(total, parts) == split


@pytest.mark.parametrize(("total", "parts"), [(-1, [1]), (5, [2, -1]), (5, [-1, 1]), (5, [-1])])
def test_less_than_nothing_cannot_be_apportioned(total: int, parts: list[int]) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        apportion(total, parts)


@given(totals, st.lists(st.integers(0, 10**9), min_size=1, max_size=12), st.integers(1, 10**6), st.data())
def test_bounds_give_the_exact_split_or_say_that_they_cannot_tell(
    total: int, parts: list[int], slack: int, data: st.DataObject
) -> None:
    lower_bounds = [max(0, part - data.draw(st.integers(0, slack - 1))) for part in parts]
    split = apportion_bounded(total, lower_bounds, slack=slack, whole=sum(parts))
    assert split in (None, apportion(total, parts))


def test_close_bounds_decide_and_wide_ones_do_not() -> None:
    exact = [31_000, 52_001, 17_000]
    assert apportion_bounded(10, [31_000, 52_000, 16_999], slack=2, whole=100_001) == apportion(10, exact)
    assert apportion_bounded(10, [31_000, 52_000, 16_999], slack=20_000, whole=100_001) is None


def test_bounds_cannot_tell_who_of_equals_is_rounded_up() -> None:
    assert apportion_bounded(1, [500, 500], slack=1, whole=1_000) is None
    assert apportion_bounded(2, [500, 500], slack=1, whole=1_000) == (1, 1)
    assert apportion_bounded(5, [0, 0], slack=1, whole=0) is None
