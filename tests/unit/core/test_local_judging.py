"""The local judge's verdict: what it promises, and what it cannot see."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.credit import compute_credit
from worker.core.local.judging import GROUNDING_THRESHOLD, judging, profile_of
from worker.core.local.segments import SENTENCE_CHARS_MAX
from worker.core.local.steps import returned
from worker.core.model import SUPPORT_SCALE, Answer, AnswerId, AnswerKey, Judgement, Source, SourceId, TenantId

SOURCE = "Steve Hillage recorded the album Green in the spring of 1977 with Nick Mason as producer."
any_text = st.text(st.characters(), max_size=200)


def answer_of(text: str, *source_texts: str, query: str = "") -> Answer:
    return Answer(
        key=AnswerKey(TenantId("t"), AnswerId("a")),
        occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
        query=query,
        text=text,
        sources=tuple(Source(SourceId(f"s{number}"), text) for number, text in enumerate(source_texts)),
        content_hash=b"",
    )


def judged(text: str, *source_texts: str) -> Judgement:
    return returned(judging(answer_of(text, *source_texts), 64))


def support(text: str, source_text: str = SOURCE) -> int:
    (row,) = judged(text, source_text).supports
    return row[0]


def test_a_source_that_says_the_answer_supports_it_fully_with_its_own_words() -> None:
    judgement = judged("Green was recorded in the spring of 1977.", SOURCE, "Seals rest on rocks.")
    assert judgement.supports == ((SUPPORT_SCALE, 0),)
    assert {cell: quote.text for cell, quote in judgement.quotes.items()} == {(0, 0): SOURCE}
    assert judgement.grounding_threshold == GROUNDING_THRESHOLD


@given(any_text, st.lists(any_text, max_size=4))
def test_any_answer_gets_a_whole_matrix_with_a_quote_for_every_positive_support(text: str, sources: list[str]) -> None:
    judgement = judged(text, *sources)
    assert len(judgement.supports) == len(judgement.key_points)
    assert all(len(row) == len(sources) for row in judgement.supports)
    positive = {
        (row, column) for row, line in enumerate(judgement.supports) for column, cell in enumerate(line) if cell
    }
    assert positive == judgement.quotes.keys()
    assert all(quote.text in sources[column] for (_, column), quote in judgement.quotes.items())


@given(any_text, any_text, any_text)
def test_a_support_does_not_depend_on_the_other_sources(text: str, source: str, rival: str) -> None:
    alone = judged(text, source)
    beside = judged(text, rival, source)
    assert [row[1] for row in beside.supports] == [row[0] for row in alone.supports]


def test_the_profile_names_the_maximum_because_it_changes_numbers() -> None:
    assert profile_of(64) != profile_of(63)
    assert profile_of(64).name == "local"


@pytest.mark.parametrize(
    "text", ["- " * 50_000, "a, " * 33_000, ". . " * 25_000, "👍" * 50_000, "東京" * 50_000, "\n" * 90_000 + "x"]
)
def test_hostile_text_is_read_in_steps_like_any_other(text: str) -> None:
    steps = sum(1 for _ in judging(answer_of(text, text), 64))
    assert steps >= 2 * len(text.strip()) // SENTENCE_CHARS_MAX


# What it cannot do: kept as tests, so that nobody is told otherwise.


def test_limit_a_negated_key_point_keeps_its_support() -> None:
    assert (
        support("Steve Hillage did not record Green in 1977.") == support("Steve Hillage did record Green in 1977.") > 0
    )


def test_limit_a_source_that_denies_a_key_point_supports_it() -> None:
    assert support("Hillage recorded Green in 1977.", "Hillage never recorded Green in 1977.") == SUPPORT_SCALE


@pytest.mark.parametrize(
    "wrong",
    ["Steve Hillage recorded the album Green in spring 1987.", "Steve Albini recorded the album Green in spring 1977."],
)
def test_limit_a_wrong_number_or_name_costs_only_its_own_word(wrong: str) -> None:
    assert (
        GROUNDING_THRESHOLD < support(wrong) == 8571 < support("Steve Hillage recorded the album Green in spring 1977.")
    )


def test_limit_a_paraphrase_is_not_recognised() -> None:
    assert support("The guitarist taped his fourth LP that year.") == 0


def test_limit_the_same_statement_in_another_language_is_not_recognised() -> None:
    assert support("Die Platte wurde im Frühjahr aufgenommen.") == 0


def test_limit_what_is_true_is_not_asked() -> None:
    assert support("Stones are soft.", "Stones are soft.") == SUPPORT_SCALE


def test_limit_a_source_that_only_repeats_the_question_earns_credit() -> None:
    question = "When was the album Green recorded?"
    judgement = judged("The album Green was recorded in the spring of 1977.", SOURCE, question)
    echo_share = compute_credit(judgement.supports).share_units[1]
    assert 0 < echo_share < 500_000_000_000
