from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.policy import OMEGA_TERMS_MAX, Grouping, Policy, PolicyName


def test_a_policy_is_named_and_only_its_own_parameter_is_looked_at() -> None:
    assert Policy.of("max", k=0, omega=()) == Policy.max() == Policy()
    assert Policy.of("top_k") == Policy.top_k(2)
    assert Policy.of("rank_weighted").omega == (Fraction(1), Fraction(1, 2), Fraction(1, 4))


@pytest.mark.parametrize(
    ("policy", "worths"),
    [
        (Policy.max(), [1, 1, 1, 1]),
        (Policy.top_k(2), [1, 2, 2, 2]),
        (Policy.top_k(9), [1, 2, 3, 4]),
        (Policy.rank_weighted(("1", "1/2", "1/4")), [4, 6, 7, 7]),
        (Policy.rank_weighted(("1", "1", "1", "1", "1")), [1, 2, 3, 4]),
    ],
)
def test_a_layer_is_worth_what_the_policy_says_of_how_many_reach_it(policy: Policy, worths: list[int]) -> None:
    assert policy.layer_worths(4) == worths


def test_equal_omegas_are_equal_policies_however_written() -> None:
    written = Policy.rank_weighted(("1", "0.50", Decimal("0.250"), 0, "0/3"))
    assert written == Policy.rank_weighted((1, Fraction(1, 2), "2/8"))
    assert written.parameters == {"omega": ["1", "1/2", "1/4"]}


@given(
    st.one_of(
        st.just(Policy.max()),
        st.integers(1, 10**6).map(Policy.top_k),
        st.lists(st.fractions(0, 1, max_denominator=999), max_size=8).map(
            lambda terms: Policy.rank_weighted([1, *sorted(terms, reverse=True)])
        ),
    )
)
def test_name_and_parameters_give_the_policy_back(policy: Policy) -> None:
    assert Policy.from_parameters(policy.name, policy.parameters) == policy


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("best", {}, "'best' is unknown: it must be one of max, top_k, rank_weighted"),
        ("max", {"k": 2}, "does not know 'k': it has no parameters"),
        ("top_k", {"omega": ["1"]}, "does not know 'omega': its parameter is k"),
        ("rank_weighted", {"k": 2}, "does not know 'k': its parameter is omega"),
        ("top_k", {"k": 0}, "k is 0"),
        ("top_k", {"k": True}, "k is True"),
        ("top_k", {"k": Decimal("2.5")}, "k is Decimal"),
        ("top_k", {"k": "2"}, "k is '2'"),
        ("top_k", {"k": None}, "top_k, which needs it"),
        ("rank_weighted", {"omega": "1"}, "write a list"),
        ("rank_weighted", {"omega": None}, "write a list"),
        ("rank_weighted", {"omega": []}, "omega has 0 terms"),
        ("rank_weighted", {"omega": ["1"] * (OMEGA_TERMS_MAX + 1)}, "omega has 65 terms"),
        ("rank_weighted", {"omega": ["1/2"]}, "omega starts with 1/2"),
        (
            "rank_weighted",
            {"omega": ["1", "1/4", "1/2"]},
            r"omega\[2\] is 1/2: terms must be at least 0 and never rise",
        ),
        ("rank_weighted", {"omega": ["1", "2"]}, r"omega\[1\] is 2"),
        ("rank_weighted", {"omega": ["1", "-1"]}, "omega term '-1'"),
        ("rank_weighted", {"omega": ["1", "1/0"]}, "the denominator is 0"),
        ("rank_weighted", {"omega": ["1", "1e-999999999"]}, "omega term '1e-999999999'"),
        ("rank_weighted", {"omega": ["1", "0.1234567891"]}, "omega term"),
        ("rank_weighted", {"omega": ["1", 0.5]}, "omega term '0.5'"),
        ("rank_weighted", {"omega": [True]}, "omega term 'True'"),
        ("rank_weighted", {"omega": [None]}, "omega term 'None'"),
        ("rank_weighted", {"omega": ["nan"]}, "omega term 'nan'"),
    ],
)
def test_a_policy_that_cannot_be_computed_cannot_be_made(name: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Policy.from_parameters(name, parameters)


@pytest.mark.parametrize(
    "arguments",
    [{"k": 2}, {"name": PolicyName.TOP_K}, {"omega": (Fraction(1),)}, {"name": PolicyName.RANK_WEIGHTED}],
)
def test_a_policy_has_its_own_parameter_and_no_other(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="and to no other"):
        Policy(**arguments)


def test_an_unknown_grouping_is_refused_with_the_known_ones() -> None:
    assert Grouping.named("owner") is Grouping.OWNER
    with pytest.raises(ValueError, match="'publisher' is unknown: it must be one of source, owner"):
        Grouping.named("publisher")
