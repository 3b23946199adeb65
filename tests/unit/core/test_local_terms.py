"""Which terms carry content, in any script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.local.terms import CACHED_WORD_CHARS_MAX, content_terms, terms_of

any_text = st.text(st.characters())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("U.S.", "US"),
        ("Hillage's albums", "hillage album"),
        ("Fe\u0301lix", "Félix"),
        ("l’été", "ETE"),
        ("ｆｕｌｌ ﬁne", "full fine"),
        ("40,000", "40000"),
        ("٤٠٬٠٠٠ و ٣٫٥", "40000 و 3.5"),
        ("STRASSE", "straße"),
        ("مَدِينَة", "مدينة"),
        ("_snow_", "snow"),
        ("co\u00adoperate", "cooperate"),
        ("ｱﾙﾌﾟｽ", "アルプス"),
    ],
)
def test_what_is_only_written_differently_is_the_same_term(one: str, other: str) -> None:
    assert list(terms_of(one)) == list(terms_of(other))


@pytest.mark.parametrize("text", ["AT&T", "3.5", "2nd", "snow_chain", "प्रधानमंत्री", "москва"])
def test_what_belongs_together_stays_one_term(text: str) -> None:
    assert list(terms_of(text)) == [text.lower()]


def test_a_missing_space_after_a_stop_does_not_join_two_words() -> None:
    assert list(terms_of("The end.Next,then")) == ["the", "end", "next", "then"]


def test_scripts_without_spaces_become_character_n_grams() -> None:
    assert list(terms_of("東京駅")) == ["東京", "京駅"]
    assert list(terms_of("กรุงเทพ")) == ["กรุ", "รุง", "ุงเ", "งเท", "เทพ"]
    assert list(terms_of("서울은")) == ["서울", "울은"]


def test_numbers_and_latin_letters_inside_such_a_script_stay_whole() -> None:
    assert {"1958", "nhk"} <= set(terms_of("東京NHKは1958年に"))


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("It was not in the harbour, but it is on an island", {"harbour", "island"}),
        ("Der Krieg war lang, und er hat das Land verändert", {"krieg", "lang", "land", "verandert"}),
        ("The war and the hat", {"war", "hat"}),
        ("यह दिल्ली में है", {"दिल्ली"}),
        ("これは東京です", {"れは", "は東", "東京", "京で"} - {"れは"}),
    ],
)
def test_stop_words_are_those_of_the_language_the_text_is_in(text: str, content: set[str]) -> None:
    assert content_terms(text) == content


def test_a_japanese_word_in_hiragana_still_counts_when_there_is_nothing_else() -> None:
    assert content_terms("さくら") == {"さく", "くら"}


@pytest.mark.parametrize("text", ["", " \n", "👍🏽 🎉", "…!?", "It is. Yes!"])
def test_a_text_that_says_nothing_has_no_content(text: str) -> None:
    assert content_terms(text) == frozenset()


@given(any_text)
def test_any_text_has_terms_none_of_them_empty(text: str) -> None:
    assert all(terms_of(text))
    assert content_terms(text) <= set(terms_of(text))


@given(st.lists(st.sampled_from(["harbour", "東京駅", "AT&T", "3.5", "Félix"]), max_size=8))
def test_words_apart_have_the_terms_of_each(words: list[str]) -> None:
    assert list(terms_of(" ".join(words))) == [term for word in words for term in terms_of(word)]


def test_a_word_too_long_to_remember_has_the_same_terms_as_a_short_one() -> None:
    assert list(terms_of("x" * CACHED_WORD_CHARS_MAX * 2)) == ["x" * CACHED_WORD_CHARS_MAX * 2]
