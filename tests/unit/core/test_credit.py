"""Worked values, what is defined at the edges, and what is refused."""

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.unit.core import credit_vectors
from worker.core.credit import Credit, compute_credit, exact_credit
from worker.core.model import UNIT_SCALE
from worker.core.policy import Grouping, Policy

TOP_2 = Policy.top_k(2)
DECLINING = Policy.rank_weighted(("1", "1/2", "1/4"))
VECTORS = json.loads(credit_vectors.VECTORS_PATH.read_text(encoding="utf-8"))["vectors"]


def credit_of(*supports: str, policy: Policy = Policy.max()) -> list[Fraction]:  # noqa: B008 - frozen
    row = [int(Fraction(support) * 10_000) for support in supports]
    numerators, denominator = exact_credit([row], policy=policy)
    return [Fraction(numerator, denominator) for numerator in numerators]


def fractions(*texts: str) -> list[Fraction]:
    return [Fraction(text) for text in texts]


@pytest.mark.parametrize(
    ("supports", "credit"),
    [
        (("0.2", "1"), fractions("0.1", "0.9")),
        (("0.3", "0.7", "1"), fractions("0.1", "0.3", "0.6")),
        (("0", ".3", ".3", ".7", ".7", "1"), fractions("0", ".06", ".06", "29/150", "29/150", "37/75")),
        (("0", "0", "0", "0", "1", "1"), fractions("0", "0", "0", "0", "1/2", "1/2")),
        (("1",), fractions("1")),
        (("0.4",), fractions("0.4")),
    ],
)
def test_worked_values_of_the_airport_game(supports: tuple[str, ...], credit: list[Fraction]) -> None:
    assert credit_of(*supports) == credit


@pytest.mark.parametrize(
    ("supports", "top_2", "declining"),
    [
        (("0.2", "1"), fractions("1/6", "5/6"), fractions("3/22", "19/22")),
        (("0.3", "0.7", "1"), fractions("2/17", "6/17", "9/17"), fractions("7/57", "19/57", "31/57")),
        (("1", "1"), fractions("1/2", "1/2"), fractions("1/2", "1/2")),
        (("0", "0", "1"), fractions("0", "0", "1"), fractions("0", "0", "1")),
    ],
)
def test_worked_values_of_the_corroborating_policies(
    supports: tuple[str, ...], top_2: list[Fraction], declining: list[Fraction]
) -> None:
    assert credit_of(*supports, policy=TOP_2) == top_2
    assert credit_of(*supports, policy=DECLINING) == declining


def test_a_lone_supporter_earns_its_whole_support_under_every_policy() -> None:
    for policy in (Policy.max(), TOP_2, DECLINING):
        assert credit_of("0", "0.7", "0", policy=policy) == fractions("0", "0.7", "0")


def test_copies_among_equals_earn_more_without_grouping_and_no_more_with_it() -> None:
    supports, owners = [[10_000, 10_000, 10_000]], ["copier", "copier", "other"]
    plain = compute_credit(supports, owners=owners)
    grouped = compute_credit(supports, owners=owners, grouping=Grouping.OWNER)
    assert sum(plain.credit_units[:2]) == 666_666_666_667
    assert grouped.credit_units == (250_000_000_000, 250_000_000_000, 500_000_000_000)


def test_sources_without_an_owner_are_no_union() -> None:
    supports = [[10_000, 10_000, 10_000]]
    grouped = exact_credit(supports, owners=[None, None, "a"], grouping=Grouping.OWNER)
    assert len(set(grouped.numerators)) == 1
    assert exact_credit(supports, grouping=Grouping.OWNER) == exact_credit(supports)


def test_ties_of_the_remainder_go_to_the_earlier_source() -> None:
    credit = compute_credit([[10_000, 10_000, 10_000]])
    assert credit.share_units == (333_333_333_334, 333_333_333_333, 333_333_333_333)


def test_no_support_at_all_leaves_everything_residual() -> None:
    for policy in (Policy.max(), TOP_2, DECLINING):
        assert compute_credit([[0, 0], [0, 0]], policy=policy) == Credit(0, UNIT_SCALE, (0, 0), (0, 0))


def test_a_key_point_without_support_is_residual_beside_one_with() -> None:
    for policy in (Policy.max(), TOP_2, DECLINING):
        credit = compute_credit([[0, 0], [10_000, 0]], [3, 1], policy=policy)
        assert credit == Credit(250_000_000_000, 750_000_000_000, (250_000_000_000, 0), (UNIT_SCALE, 0))


@pytest.mark.parametrize("grouping", Grouping)
def test_no_key_points_and_no_sources_are_defined(grouping: Grouping) -> None:
    assert compute_credit([], grouping=grouping) == Credit(0, UNIT_SCALE, (), ())
    assert compute_credit([], [], owners=["a", None], grouping=grouping) == Credit(0, UNIT_SCALE, (0, 0), (0, 0))
    assert compute_credit([[], []], grouping=grouping) == Credit(0, UNIT_SCALE, (), ())
    assert compute_credit([[], []], [1, 2], owners=[], grouping=grouping) == Credit(0, UNIT_SCALE, (), ())


def test_a_utility_below_one_unit_still_shares_out() -> None:
    credit = compute_credit([[1, 1], [0, 0]], [1, 10**12])
    assert (credit.utility_units, credit.credit_units) == (0, (0, 0))
    assert credit.share_units == (UNIT_SCALE // 2, UNIT_SCALE // 2)


def test_the_widest_answer_stays_exact() -> None:
    supports = [[(source * 7_919 + row * 104_729) % 10_001 for source in range(500)] for row in range(3)]
    for policy in (Policy.max(), TOP_2, DECLINING):
        numerators, denominator = exact_credit(supports, policy=policy)
        assert Fraction(sum(numerators), denominator) == Fraction(sum(map(max, supports)), 30_000)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_golden_vectors_hold_bit_for_bit(vector: dict[str, Any]) -> None:
    supports, weights, owners = vector["supports"], vector["weights"], vector["owners"]
    policy = Policy.from_parameters(vector["policy"], vector["policy_parameters"])
    grouping = Grouping.named(vector["grouping"])
    numerators, denominator = exact_credit(supports, weights, owners=owners, policy=policy, grouping=grouping)
    assert [Fraction(numerator, denominator) for numerator in numerators] == fractions(*vector["phi"])
    credit = compute_credit(supports, weights, owners=owners, policy=policy, grouping=grouping)
    assert list(credit.credit_units) == vector["credit_units"]
    assert list(credit.share_units) == vector["share_units"]
    assert (credit.utility_units, credit.residual_units) == (vector["utility_units"], vector["residual_units"])


def test_the_golden_vectors_are_what_brute_force_computes() -> None:
    assert credit_vectors.VECTORS_PATH.read_text(encoding="utf-8") == credit_vectors.document()


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (10_001, "10001"),
        (-1, "-1"),
        (True, "True"),
        (False, "False"),
        (0.3, "0.3"),
        (3_000.0, "3000.0"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (None, "None"),
        ("3000", "'3000'"),
        (np.int64(3_000), "np.int64"),
        (10**50, "1" + "0" * 39 + "…"),
    ],
)
@pytest.mark.parametrize("beside", [0, 1, 3_000])
def test_a_cell_that_is_no_support_is_named_and_refused(cell: Any, shown: str, beside: int) -> None:
    with pytest.raises(ValueError, match=r"supports\[1\]\[2\] is .*within 0 and 10000") as refusal:
        compute_credit([[0, 3_000, 0], [beside, 3_000, cell]])
    assert shown in str(refusal.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"supports": [[1, 2], [1]]}, r"supports\[1\] has 1 cells, supports\[0\] has 2"),
        ({"supports": [[1], [1, 2]]}, r"supports\[1\] has 2 cells, supports\[0\] has 1"),
        ({"supports": [[1, 2], [1], [1, 2, 3]]}, r"supports\[1\] has 1 cells"),
        ({"supports": [[], [1]]}, r"supports\[1\] has 1 cells"),
        ({"supports": [1, 2]}, "a list of rows"),
        ({"supports": [[1], 2]}, "a list of rows"),
        ({"supports": [[1, 2]], "weights": []}, "weights has 0 entries for 1 key points"),
        ({"supports": [[1, 2]], "weights": [1, 1]}, "weights has 2 entries for 1 key points"),
        ({"supports": [[1, 2], [1, 2]], "weights": [1, 0]}, r"weights\[1\] is 0: a weight must be a positive integer"),
        ({"supports": [[1, 2]], "weights": [-3]}, r"weights\[0\] is -3"),
        ({"supports": [[1, 2]], "weights": [True]}, r"weights\[0\] is True"),
        ({"supports": [[1, 2]], "weights": [1.0]}, r"weights\[0\] is 1.0"),
        ({"supports": [[1, 2]], "owners": ["a"]}, "owners has 1 entries for 2 sources"),
        ({"supports": [], "weights": [1]}, "weights has 1 entries for 0 key points"),
    ],
)
def test_a_malformed_matrix_is_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compute_credit(**arguments)
