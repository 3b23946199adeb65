"""How much of a key point a source states, and the passage that shows it."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.local.segments import SENTENCE_CHARS_MAX
from worker.core.local.support import Window, best_window, index_of, ratio_in_units, support_of
from worker.core.local.terms import content_terms
from worker.core.model import SUPPORT_SCALE, Source, SourceId

any_text = st.text(st.characters())
words = st.lists(
    st.sampled_from(["harbour", "tram", "seal", "tower", "東京駅", "قلعة", "the", "of.", "it!", "40,000"]), max_size=20
).map(" ".join)


def source(text: str, title: str | None = None) -> Source:
    return Source(SourceId("s1"), text, title=title)


def support(key_point: str, text: str, title: str | None = None) -> int:
    return support_of(content_terms(key_point), index_of(source(text, title)))


def window(key_point: str, text: str, title: str | None = None) -> Window | None:
    return best_window(content_terms(key_point), index_of(source(text, title)))


def test_support_is_the_share_of_content_terms_found_in_title_and_text() -> None:
    assert support("The harbour tram runs daily", "A tram is a railway.") == 2500
    assert support("The harbour tram runs daily", "It runs daily.", title="Harbour trams") == SUPPORT_SCALE
    assert support("The harbour tram runs daily", "Seals rest on rocks.") == 0


def test_support_is_not_snapped_to_a_rubric() -> None:
    assert support("red harbour trams", "harbour trams") == 6667


def test_a_repeated_term_counts_once() -> None:
    assert support("tram tram tram harbour", "tram") == 5000


def test_a_key_point_without_content_has_no_support() -> None:
    assert support("it is", "it is") == 0


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_a_ratio_is_rounded_half_to_even(part: int, whole: int) -> None:
    assert ratio_in_units(part, whole) == round(Fraction(part * SUPPORT_SCALE, whole))


@pytest.mark.parametrize(("part", "whole", "units"), [(1, 20_000, 0), (3, 20_000, 2), (5, 20_000, 2), (1, 3, 3333)])
def test_halves_go_to_the_even_unit(part: int, whole: int, units: int) -> None:
    assert ratio_in_units(part, whole) == units


def test_the_window_is_the_sentence_that_holds_most_of_the_terms() -> None:
    text = "A tram is a railway. The harbour tram runs daily in summer! Seals rest."
    assert window("The harbour tram runs daily", text) == Window("The harbour tram runs daily in summer!", 4)


def test_two_neighbouring_sentences_are_quoted_together_when_both_are_needed() -> None:
    text = "Seals rest. The harbour has a tram.  It runs daily. Seals swim."
    assert window("The harbour tram runs daily", text) == Window("The harbour has a tram.  It runs daily.", 4)


def test_of_equal_windows_the_shortest_then_the_first_is_quoted() -> None:
    assert window("harbour", "In the old harbour. A harbour. B harbour.") == Window("A harbour.", 1)


def test_title_and_text_are_never_quoted_as_one() -> None:
    assert window("harbour tram", "tram", title="harbour") == Window("tram", 1)


def test_a_term_found_nowhere_gives_no_window() -> None:
    assert window("harbour", "tram") is None


@given(words | any_text, words | any_text, words | any_text | st.none())
def test_a_positive_support_always_has_a_verbatim_quote(key_point: str, text: str, title: str | None) -> None:
    found = window(key_point, text, title)
    assert (found is not None) == (support(key_point, text, title) > 0)
    if found is not None:
        assert found.text in text or found.text in (title or "")
        assert 0 < len(found.text) <= SENTENCE_CHARS_MAX
        assert found.terms == len(content_terms(key_point) & set(index_of(source(found.text)).sentences_by_term))


@given(words, words, words)
def test_more_text_never_lowers_a_support(key_point: str, text: str, more: str) -> None:
    assert support(key_point, f"{text}\n{more}") >= support(key_point, text)
