"""An answer's key points: its clauses, joined until each makes a claim."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.local.key_points import key_points_of

any_text = st.text(st.characters())
sentence = st.sampled_from(
    [
        "The harbour tram runs daily.",
        "Yes.",
        "👍",
        "Eight grey seals rest there, said head warden Ottoline Marsh.",
        "東京は首都です。",
    ]
)


def texts(answer: str, key_points_max: int = 64) -> list[str]:
    return [key_point.text for key_point in key_points_of(answer, key_points_max)]


def test_a_sentence_of_two_claims_becomes_two_key_points() -> None:
    answer = "Actaea is native to Europe, Asia and America, while Onoclea is native to eastern Asia and America."
    assert texts(answer) == [
        "Actaea is native to Europe, Asia and America",
        "while Onoclea is native to eastern Asia and America.",
    ]


def test_a_list_of_names_stays_with_its_clause() -> None:
    answer = "The club won cups in Oslo, Bergen, Moss and Tromsø."
    assert texts(answer) == [answer]


def test_a_sentence_without_content_belongs_to_the_claim_beside_it() -> None:
    assert texts("Yes. The harbour tram runs daily. 👍") == ["Yes. The harbour tram runs daily. 👍"]


@pytest.mark.parametrize("answer", ["", "  \n ", "👍🏽", "Yes.", "…", "[1]"])
def test_an_answer_that_claims_nothing_has_no_key_points(answer: str) -> None:
    assert texts(answer) == []


def test_markdown_and_citation_marks_are_left_out() -> None:
    answer = "## Facts\n1. **Berlin** is the `capital` of Germany.[1][2]\n- It lies on the river Spree【3†source】."
    assert texts(answer) == ["Facts", "Berlin is the capital of Germany.", "It lies on the river Spree."]


@pytest.mark.parametrize("key_points_max", [1, 2, 7, 64])
def test_past_the_maximum_neighbours_are_joined_evenly_and_nothing_is_dropped(key_points_max: int) -> None:
    claims = [f"Harbour {number} opened." for number in range(100)]
    joined = texts(" ".join(claims), key_points_max)
    assert len(joined) == key_points_max
    assert " ".join(joined) == " ".join(claims)
    sizes = [text.count("Harbour") for text in joined]
    assert max(sizes) - min(sizes) <= 1


@given(any_text | st.lists(sentence, max_size=30).map(" ".join), st.integers(1, 8))
def test_any_answer_has_at_most_the_maximum_of_key_points_none_of_them_blank(answer: str, key_points_max: int) -> None:
    key_points = key_points_of(answer, key_points_max)
    assert len(key_points) <= key_points_max
    assert all(key_point.text.strip() and key_point.weight == 1 for key_point in key_points)


@given(st.lists(sentence, max_size=30), st.integers(1, 8))
def test_every_word_of_an_answer_that_claims_something_is_in_a_key_point(parts: list[str], key_points_max: int) -> None:
    answer = " ".join(parts)
    joined = " ".join(texts(answer, key_points_max))
    assert not joined or joined.replace(",", "") == answer.replace(",", "")
