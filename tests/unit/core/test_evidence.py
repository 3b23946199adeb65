"""Whether a quote is in its source, and where the source says it when it is not."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.evidence import MARKS_RUN_MAX, folded, folded_source, holds_quote, located_quote
from worker.core.local.support import index_of
from worker.core.model import Quote, QuoteOrigin, Source, SourceId

SOURCE = Source(
    SourceId("s1"),
    "The “Green” album — recorded in 1977 —\nwas Hillage’s fourth. It sold 40,000 copies; nobody expected that.",
    title="Green (Steve Hillage album)",
)


def held(quote: str) -> bool:
    return holds_quote(quote, folded_source(SOURCE))


@pytest.mark.parametrize(
    "quote",
    [
        "recorded in 1977",
        "RECORDED  in\t1977",
        'the "green" album - recorded',
        "was hillage's fourth",
        "“was Hillage's fourth.”",
        "The 'Green' album … was Hillage’s fourth",
        "The “Green” album ... was Hillage's fourth [...] 40,000 copies",
        "The “Green” album . . . fourth",
        "...sold 40,000 copies...",
        "Ｇｒｅｅｎ (Steve Hillage album)",
        "rec\u00adorded in\u200b 1977",
        "album) The “Green”",
    ],
)
def test_a_quote_is_found_however_it_is_typeset(quote: str) -> None:
    assert held(quote)


@pytest.mark.parametrize(
    "quote",
    [
        "recorded in 1978",
        "recorded 1977",
        "Hillage’s fourth … recorded in 1977",
        "copies ... copies",
        "was not Hillage's fourth",
        "",
        "  ",
        "…",
        '""',
        ";",
    ],
)
def test_a_quote_with_another_word_or_order_or_without_any_is_not_found(quote: str) -> None:
    assert not held(quote)


@given(st.text(st.characters(), min_size=1), st.text(), st.text())
def test_every_passage_of_a_text_that_has_a_letter_is_found_in_it(passage: str, before: str, after: str) -> None:
    if any(character.isalnum() for character in folded(passage)):
        assert holds_quote(passage, folded(f"{before} {passage} {after}"))


@given(st.text(st.characters()))
def test_folding_does_not_depend_on_normal_form_case_or_space(text: str) -> None:
    assert folded(text) == folded(f" {unicodedata.normalize('NFKC', text)}\n") == folded(folded(text))


def test_piled_up_marks_are_cut_before_sorting_them_takes_for_ever() -> None:
    # Quadratic without the cut: minutes for this text.
    assert len(folded("a" + "\u0301\u0316" * 250_000)) <= 1 + MARKS_RUN_MAX


def test_where_the_quote_is_missing_the_best_window_stands_if_it_holds_half_of_the_content_terms() -> None:
    quote = located_quote("Hillage's fourth sold well", index_of(SOURCE))
    assert quote == Quote("was Hillage’s fourth. It sold 40,000 copies; nobody expected that.", QuoteOrigin.LOCATED)


def test_exactly_half_of_the_content_terms_is_enough() -> None:
    assert located_quote("copies sold rapidly everywhere", index_of(SOURCE)) is not None


@pytest.mark.parametrize("key_point", ["copies burned rapidly everywhere", "Seals rest on rocks", "it is", ""])
def test_less_than_half_is_no_evidence(key_point: str) -> None:
    assert located_quote(key_point, index_of(SOURCE)) is None
