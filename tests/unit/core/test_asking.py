import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.language_model import asked_in, message_of
from tests.support import samples
from worker.core.asking import (
    FRAMING_TOKENS,
    Asker,
    JudgingMethod,
    ModelLimits,
    ScoreRequest,
    TooLargeError,
    fingerprint,
)
from worker.core.fencing import ShownAnswer, encoded, show
from worker.core.llm import CompletionRequest, Stage
from worker.core.matrix import cells_of
from worker.core.model import Answer, KeyPoint, Source, SourceId
from worker.core.prompts import Again, Refinement, ScoringMode, Weighting
from worker.core.splitting import Cell

SECRET = b"sixteen bytes or more"
ROOMY = ModelLimits(input_tokens_max=1_000_000, output_tokens_max=100_000)
KEY_POINTS = (KeyPoint("Tea is a drink."), KeyPoint("Tea is hot."))


def count_words(text: str) -> int:
    """A stand-in for a tokenizer: fewer tokens than bytes."""
    return len(text.split())


def asker(
    given_answer: Answer, mode: ScoringMode = ScoringMode.ANSWER, limits: ModelLimits = ROOMY, **settings: Any
) -> Asker:
    return Asker(show(given_answer, SECRET), JudgingMethod(scoring_mode=mode, **settings), limits, count_words)


def calls_of(
    asking: Asker, key_points: Sequence[KeyPoint], cells: Collection[Cell], again: Again | None = None
) -> list[ScoreRequest]:
    return list(asking.score(key_points, cells, again))


def size_of(request: CompletionRequest) -> int:
    texts = (request.instructions, encoded(request.schema), request.context, request.question)
    return FRAMING_TOKENS + sum(map(count_words, texts))


def with_texts(*texts: str) -> Answer:
    sources = tuple(Source(SourceId(f"doc-{index}"), text) for index, text in enumerate(texts))
    return replace(samples.answer(), sources=sources)


def test_the_same_answer_builds_the_same_requests_byte_for_byte() -> None:
    def built() -> list[dict[str, object]]:
        asking = asker(samples.answer(source_count=7))
        requests = [asking.decompose(), asking.refine(KEY_POINTS)]
        requests += [asked.request for asked in calls_of(asking, KEY_POINTS, cells_of(2, 7))]
        return [asdict(request) for request in requests]

    assert built() == built()


def test_two_answers_share_every_byte_that_comes_before_their_own_boundary() -> None:
    one, other = (asker(samples.answer(f"a-{number}")) for number in range(2))
    for first, second in zip(
        [one.decompose(), *(a.request for a in calls_of(one, KEY_POINTS, cells_of(2, 3)))],
        [other.decompose(), *(a.request for a in calls_of(other, KEY_POINTS, cells_of(2, 3)))],
        strict=True,
    ):
        assert first.instructions == second.instructions
        assert encoded(first.schema) == encoded(second.schema)
        assert message_of(first).startswith("<data ")
        assert message_of(first).split("\n")[0] != message_of(second).split("\n")[0]


def test_key_points_are_asked_for_without_the_sources() -> None:
    request = asker(with_texts("The moon is far away.")).decompose()
    assert request.context == ""
    assert "moon" not in message_of(request)
    assert asked_in(request).query == "What is tea?"
    assert asked_in(request).answer == "Tea is a drink."


def test_what_decides_a_judgement_is_in_no_other_field_of_an_event() -> None:
    """Query, answer, titles and texts: no owner, licence, address or id of a publisher's can plead for its source."""
    source = Source(SourceId("publisher-id"), "Tea.", url="https://u.example", license_ref="l-1", title="A title")
    given_answer = replace(samples.answer(), sources=(source,), labels={"label": "value"})
    asking = asker(given_answer)
    messages = message_of(asking.decompose()) + message_of(calls_of(asking, KEY_POINTS, cells_of(2, 1))[0].request)
    assert not [word for word in ("publisher-id", "u.example", "l-1", "value", "a-1") if word in messages]
    assert "A title" in messages


@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from(ScoringMode), st.data())
def test_every_cell_is_asked_for_exactly_once_and_shown_with_its_own_texts(
    rows: int, columns: int, mode: ScoringMode, data: st.DataObject
) -> None:
    cells = data.draw(st.sets(st.sampled_from(cells_of(rows, columns)), min_size=1))
    given_answer = with_texts(*(f"text {index}" for index in range(columns)))
    key_points = tuple(KeyPoint(f"point {index}") for index in range(rows))
    asked_for = []
    for asked in calls_of(asker(given_answer, mode), key_points, cells):
        shown = asked_in(asked.request)
        texts = {source.source_id: source.text for source in shown.sources}
        pairs = {(shown.key_points[key], texts[source]) for key, source in shown.pairs}
        assert pairs == {(f"point {row}", f"text {column}") for row, column in asked.cells}
        assert len(shown.pairs) == len(asked.cells)
        asked_for += list(asked.cells)
    assert sorted(asked_for) == sorted(cells)


@pytest.mark.parametrize(("mode", "calls"), [(ScoringMode.ANSWER, 1), (ScoringMode.SOURCE, 3), (ScoringMode.PAIR, 6)])
def test_a_mode_decides_how_much_one_call_is_asked(mode: ScoringMode, calls: int) -> None:
    assert len(calls_of(asker(samples.answer(source_count=3), mode), KEY_POINTS, cells_of(2, 3))) == calls


def test_what_is_asked_again_shows_only_the_sources_and_key_points_it_concerns() -> None:
    asking = asker(with_texts("text 0", "text 1", "text 2", "text 3"))
    (asked,) = calls_of(asking, KEY_POINTS, [(0, 1), (1, 2)], Again.UNSETTLED_CELLS)
    shown = asked_in(asked.request)
    assert {source.text for source in shown.sources} == {"text 1", "text 2"}
    assert len(shown.pairs) == 2
    assert asked.request.question.endswith("or quoted words that the source does not have.")


def test_asking_again_is_another_request_than_before() -> None:
    asking = asker(samples.answer())
    cells = cells_of(2, 3)
    requests = [asking.decompose(again) for again in (None, Again.UNREADABLE, Again.NOTHING_FOUND)]
    requests += [asking.refine(KEY_POINTS, again) for again in (None, Again.UNREADABLE, Again.NOTHING_FOUND)]
    for again in (None, Again.UNSETTLED_CELLS):
        (asked,) = calls_of(asking, KEY_POINTS, cells, again)
        larger = asking.larger(asked.request)
        assert larger is not None
        requests += [asked.request, larger]
    assert len({fingerprint(request) for request in requests}) == len(requests)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=12), st.integers(450, 900))
def test_sources_that_do_not_fit_are_split_and_never_cut(lengths: list[int], input_tokens_max: int) -> None:
    texts = [f"{index} " + "word " * length for index, length in enumerate(lengths)]
    limits = ModelLimits(input_tokens_max, output_tokens_max=100_000)
    asking = asker(with_texts(*texts), limits=limits)
    alone = [calls_of(asker(with_texts(text)), KEY_POINTS, cells_of(2, 1))[0].request for text in texts]
    # A line's end may be a token of its own.
    if any(size_of(request) + 1 > input_tokens_max for request in alone):
        with pytest.raises(TooLargeError, match=r"^sources\[\d+\] and the key points"):
            calls_of(asking, KEY_POINTS, cells_of(2, len(texts)))
        return
    calls = calls_of(asking, KEY_POINTS, cells_of(2, len(texts)))
    shown = [source.text for call in calls for source in asked_in(call.request).sources]
    assert sorted(shown) == sorted(texts)
    assert all(size_of(call.request) <= input_tokens_max for call in calls)


def test_sources_share_a_call_while_they_fit() -> None:
    asking = asker(with_texts(*["word " * 100] * 6), limits=ModelLimits(700, 100_000))
    alone = calls_of(asking, KEY_POINTS, cells_of(2, 1))[0].request
    spare = 700 - size_of(alone)
    calls = calls_of(asking, KEY_POINTS, cells_of(2, 6))
    assert max(len(asked_in(call.request).sources) for call in calls) == 1 + spare // 102
    assert len(calls) < 6


@pytest.mark.parametrize("mode", ScoringMode)
def test_a_source_that_fits_no_call_is_refused_by_name_whatever_the_mode(mode: ScoringMode) -> None:
    asking = asker(with_texts("short", "word " * 2_000, "short"), mode, ModelLimits(1_000, 100_000))
    with pytest.raises(TooLargeError, match=r"^sources\[1\] and the key points do not fit the 1000 input tokens"):
        calls_of(asking, KEY_POINTS, cells_of(2, 3))


def test_an_answer_that_fits_no_call_is_refused() -> None:
    asking = asker(samples.answer(text="word " * 2_000), limits=ModelLimits(1_000, 100_000))
    with pytest.raises(TooLargeError, match=r"^query and answer do not fit"):
        asking.decompose()
    with pytest.raises(TooLargeError, match=r"^query and key points do not fit"):
        asking.refine([KeyPoint("word " * 2_000)])


@pytest.mark.parametrize("reasoning", [0, 1_000])
def test_a_call_asks_for_no_more_cells_than_a_full_reply_has_room_for(reasoning: int) -> None:
    asking = asker(samples.answer(source_count=40), limits=ModelLimits(1_000_000, 2_000, reasoning))
    calls = calls_of(asking, KEY_POINTS, cells_of(2, 40))
    assert len(calls) > 1
    assert all(64 + 2 * 16 + 32 * len(call.cells) + reasoning <= 2_000 for call in calls)


def test_reply_caps_follow_from_what_is_asked_and_leave_room_to_reason() -> None:
    plain = asker(samples.answer(source_count=6))
    reasoning = asker(samples.answer(source_count=6), limits=ModelLimits(1_000_000, 100_000, 5_000))
    caps = []
    for asking in (plain, reasoning):
        (score,) = calls_of(asking, KEY_POINTS, cells_of(2, 6))
        caps.append([asking.decompose().output_tokens_max, score.request.output_tokens_max])
    assert caps[0] == [64 + 2 * 4, 64 + 2 * 16 + 12 * 32]
    assert caps[1] == [cap + 5_000 for cap in caps[0]]


def test_a_larger_request_differs_by_its_cap_alone_and_ends_at_the_models() -> None:
    asking = asker(samples.answer(), limits=ModelLimits(1_000_000, 500))
    request = asking.decompose()
    larger = asking.larger(request)
    assert larger == replace(request, output_tokens_max=288)
    largest = asking.larger(larger)
    assert largest is not None
    assert largest.output_tokens_max == 500
    assert asking.larger(largest) is None


def test_weights_and_refinement_change_the_first_request_alone() -> None:
    plain = asker(samples.answer())
    other = asker(samples.answer(), weighting=Weighting.IMPORTANCE, refinement=Refinement.OFF)
    assert plain.decompose() != other.decompose()
    assert calls_of(plain, KEY_POINTS, cells_of(2, 3)) == calls_of(other, KEY_POINTS, cells_of(2, 3))


def test_tokens_are_counted_only_where_bytes_do_not_fit() -> None:
    counted: list[str] = []

    def counting(text: str) -> int:
        counted.append(text)
        return count_words(text)

    def asking(limits: ModelLimits) -> Asker:
        shown: ShownAnswer = show(samples.answer(), SECRET)
        return Asker(shown, JudgingMethod(), limits, counting)

    asking(ROOMY).score(KEY_POINTS, cells_of(2, 3))
    assert counted == []
    asking(ModelLimits(500, 100_000)).score(KEY_POINTS, cells_of(2, 3))
    assert counted


def test_a_fingerprint_is_of_every_field() -> None:
    request = asker(samples.answer()).decompose()
    others = [
        replace(request, stage=Stage.SCORE),
        replace(request, instructions="other"),
        replace(request, context="other"),
        replace(request, question="other"),
        replace(request, schema_name="other"),
        replace(request, schema={}),
        replace(request, output_tokens_max=1),
    ]
    assert len(others) == len(fields(request))
    assert len({fingerprint(other) for other in [request, *others]}) == len(others) + 1
    assert json.loads(json.dumps(request.schema)) == request.schema
