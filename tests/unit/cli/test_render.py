"""How numbers and bars look to a person."""

import io
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from worker.cli.render import BAR_WIDTH, AnswerView, Bar, SourceLine, answer_panel, decimal_of, money, percent
from worker.cli.terminal import plain
from worker.core.model import UNIT_SCALE

UNITS = st.integers(0, UNIT_SCALE)


def shown(renderable: object, *, width: int = 80, encoding: str = "utf-8") -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    Console(file=file, width=width, highlight=False).print(renderable)
    file.seek(0)
    return file.read()


@pytest.mark.parametrize(
    ("units", "text"),
    [
        (0, "0.0 %"),
        (UNIT_SCALE, "100.0 %"),
        (333_333_333_333, "33.3 %"),
        (999_500_000_000, "100.0 %"),
        (499_999, "0.0 %"),
    ],
)
def test_a_percentage_is_rounded_half_up_in_integers(units: int, text: str) -> None:
    assert percent(units) == text


@given(UNITS)
def test_percentages_and_decimals_are_at_most_half_a_step_off(units: int) -> None:
    exact = Decimal(units) / UNIT_SCALE
    assert abs(Decimal(percent(units).removesuffix(" %")) / 100 - exact) <= Decimal("0.0005")
    assert abs(Decimal(decimal_of(units)) - exact) <= Decimal("0.0005")


@given(UNITS, st.sampled_from(["utf-8", "ascii", "latin-1"]))
def test_a_bar_is_as_long_as_its_part_in_any_encoding(units: int, encoding: str) -> None:
    bar = shown(Bar(units), encoding=encoding)
    assert "?" not in bar
    drawn = len(bar.rstrip())
    assert abs(drawn - units * BAR_WIDTH / UNIT_SCALE) <= 1


@given(UNITS, UNITS)
def test_a_longer_bar_is_never_shown_for_a_smaller_share(first: int, second: int) -> None:
    shorter, longer = sorted((first, second))
    assert len(shown(Bar(shorter)).rstrip()) <= len(shown(Bar(longer)).rstrip())


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("2.4", "2.40 USD"),
        ("0", "0.00 USD"),
        ("1E+3", "1000.00 USD"),
        ("0.000120000", "0.00012 USD"),
        ("5", "5.00 USD"),
    ],
)
def test_money_has_two_decimals_or_as_many_as_it_needs(amount: str, text: str) -> None:
    assert money(Decimal(amount), "USD") == text


@given(st.text())
def test_text_from_strangers_is_shown_and_does_nothing_else(text: str) -> None:
    printed = shown(plain(text), width=10_000)
    assert printed.count("\n") == 1
    assert not any(character < " " or character in "\x7f\x9b\u202e\u2066" for character in printed.removesuffix("\n"))


def test_a_long_name_is_cut_and_the_share_beside_it_stays() -> None:
    view = AnswerView(
        "t" * 300, "a" * 300, "q" * 300, "attributed", UNIT_SCALE, [SourceLine("s" * 99, "o" * 99, 1)], []
    )
    panel = shown(answer_panel(view))
    assert max(map(len, panel.splitlines())) <= 80
    assert "0.0 %" in panel


def test_a_query_that_is_not_stored_is_said_to_be_missing() -> None:
    assert shown(answer_panel(AnswerView("t", "a", "", "no_sources", 0, [], []))).startswith("(no query stored)")
