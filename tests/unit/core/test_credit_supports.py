from decimal import ROUND_DOWN, Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.supports import support_units


@pytest.mark.parametrize(
    ("support", "units"),
    [
        (0, 0),
        (1, 10_000),
        ("0.7", 7_000),
        (0.7, 7_000),
        (0.1 + 0.2, 3_000),
        (Decimal("0.0001"), 1),
        ("1e-4", 1),
        ("1.0000", 10_000),
        (-0.0, 0),
        ("1e-999999999", 0),
    ],
)
def test_a_support_is_counted_in_ten_thousandths(support: Any, units: int) -> None:
    assert support_units(support) == units


@pytest.mark.parametrize(
    ("support", "units"),
    [("0.00005", 0), ("0.00015", 2), ("0.00025", 2), ("0.99995", 10_000), ("0.00005000000000000000000000000001", 1)],
)
def test_more_decimals_are_rounded_once_half_to_even(support: str, units: int) -> None:
    assert support_units(support) == units


@given(st.fractions(0, 1, max_denominator=10**6))
def test_rounding_agrees_with_exact_fractions(support: Fraction) -> None:
    decimals = Decimal(support.numerator) / Decimal(support.denominator)
    assert support_units(decimals) == round(Fraction(decimals) * 10_000)


def test_a_callers_decimal_context_changes_no_number() -> None:
    with localcontext() as context:
        context.prec = 1
        context.rounding = ROUND_DOWN
        assert support_units("0.12345") == 1_234
        assert support_units("0.12355") == 1_236


@pytest.mark.parametrize(
    "support",
    [
        "1.00001",
        1.00001,
        2,
        -1,
        "-0.00001",
        "1e999999999",
        float("nan"),
        float("inf"),
        float("-inf"),
        "NaN",
        "Infinity",
        Decimal("sNaN"),
        True,
        False,
        None,
        "",
        " 0.5",
        "0_1",
        "٠.٥",
        "half",
        [0.5],
        b"0.5",
        0.5j,
    ],
)
def test_what_is_no_number_within_0_and_1_is_refused(support: Any) -> None:
    with pytest.raises(ValueError, match="is no support"):
        support_units(support)
