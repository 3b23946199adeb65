"""Where sentences and clauses begin and end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.local.segments import SENTENCE_CHARS_MAX, clause_spans, sentence_spans


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


def clauses(text: str) -> list[str]:
    return [text[start:end] for start, end in clause_spans(text, (0, len(text)))]


@pytest.mark.parametrize(
    "expected",
    [
        ["He left.", "She stayed!", "Why?", "Nobody knows…"],
        ["東京は首都です。", "人口は多い！", "本当？"],
        ["هل هذا صحيح؟", "نعم."],
        ["यह दिल्ली है।", "वह बड़ा है।"],
        ['He said "no."', "She agreed.[1][2]", "Done"],
    ],
)
def test_sentences_end_where_their_script_ends_them(expected: list[str]) -> None:
    assert sentences(" ".join(expected)) == expected


def test_no_space_is_needed_where_the_script_writes_none() -> None:
    assert sentences("東京は首都です。人口は多い。") == ["東京は首都です。", "人口は多い。"]


@pytest.mark.parametrize(
    "text",
    [
        "Dr. J. R. Smith met Mr. Brown at No. 5 on Jan. 5.",
        "It costs 3.50 crowns, e.g. at example.com today.",
        "1. The first of three.",
        "George W. Blair, Jr. was born in Washington, D.C. in 1900.",
    ],
)
def test_a_dot_that_ends_no_sentence_is_passed_over(text: str) -> None:
    assert sentences(text) == [text]


def test_an_answer_no_at_the_end_of_a_sentence_is_no_abbreviation() -> None:
    assert sentences("The answer is no. Paris is larger.") == ["The answer is no.", "Paris is larger."]


def test_lines_are_sentences_of_their_own() -> None:
    assert sentences("Opening hours\nMonday to Friday\r\n\r\nClosed") == ["Opening hours", "Monday to Friday", "Closed"]


def test_a_run_without_an_end_is_cut_at_a_space() -> None:
    parts = sentences("harbour " * 200)
    assert max(map(len, parts)) <= SENTENCE_CHARS_MAX
    assert {word for part in parts for word in part.split()} == {"harbour"}


@given(st.text(st.characters()) | st.text(".!? \n\"'aA1。", max_size=2000))
def test_every_character_that_is_not_space_is_in_exactly_one_sentence(text: str) -> None:
    spans = list(sentence_spans(text))
    covered = [position for start, end in spans for position in range(start, end)]
    assert covered == sorted(set(covered))
    assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())
    assert all(0 < end - start <= SENTENCE_CHARS_MAX for start, end in spans)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "It opened in 1889, and it closed; then: nothing",
            ["It opened in 1889,", "and it closed;", "then:", "nothing"],
        ),
        ("高さは333メートルで、設計は内藤です", ["高さは333メートルで、", "設計は内藤です"]),
        ("كبيرة، وجميلة", ["كبيرة،", "وجميلة"]),
        ("large – and old", ["large –", "and old"]),
        ("40,000 at 10:30 in well-kept rooms", ["40,000 at 10:30 in well-kept rooms"]),
    ],
)
def test_clauses_end_at_marks_that_stand_between_words(text: str, expected: list[str]) -> None:
    assert [clause.rstrip(" –") for clause in clauses(text)] == [clause.rstrip(" –") for clause in expected]
