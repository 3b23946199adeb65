from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.language_model import REFUSED, TRUNCATED, FakeModel, asked_in, completion, message_of, talk
from tests.support import samples
from worker.core.asking import JudgingMethod, ModelLimits, fingerprint
from worker.core.conversation import Incomplete, IncompleteReason, Reception
from worker.core.judging import Judging
from worker.core.llm import Completion, CompletionRequest, Finish, Stage
from worker.core.model import Answer, AnswerId, AnswerKey, Judgement, KeyPoint, Quote, QuoteOrigin, Source, SourceId
from worker.core.model_side import ShownSource, StatedCell, key_points_reply, scores_reply
from worker.core.prompts import Refinement, ScoringMode, Weighting
from worker.core.verdict import Ignored

SECRET = b"sixteen bytes or more"
ROOMY = ModelLimits(input_tokens_max=1_000_000, output_tokens_max=100_000)
KEY_POINTS = (KeyPoint("Tea is a hot drink."), KeyPoint("Coffee comes from beans."))
TEXTS = ("Tea is a hot drink in most of the world.", "Coffee comes from beans of a shrub.", "The moon is round.")
SUPPORTS = ((10_000, 3_000, 0), (0, 7_000, 0))
NO_JSON = completion("I would rather not say.")
NO_KEY_POINTS = completion('{"key_points":[]}')
NO_ROWS = completion('{"rows":[]}')


def answer(texts: Sequence[str] = TEXTS) -> Answer:
    sources = tuple(Source(SourceId(f"doc-{index}"), text) for index, text in enumerate(texts))
    return replace(samples.answer(), sources=sources)


def judging(given_answer: Answer | None = None, limits: ModelLimits = ROOMY, **settings: Any) -> Judging:
    return Judging(
        given_answer or answer(),
        method=JudgingMethod(**settings),
        limits=limits,
        secret=SECRET,
        count_tokens=lambda text: len(text.split()),
    )


def opinion(key_point: str, source: ShownSource) -> tuple[int, str]:
    """The matrix SUPPORTS, each support quoted by the first three words of its source."""
    row = [point.text for point in KEY_POINTS].index(key_point)
    return SUPPORTS[row][TEXTS.index(source.text)], " ".join(source.text.split()[:3])


def model(**options: Any) -> FakeModel:
    return FakeModel(KEY_POINTS, opinion, **options)


def misquoting(key_point: str, source: ShownSource) -> tuple[int, str]:
    """As `opinion`, but the first source is quoted with words that it does not have."""
    units, quote = opinion(key_point, source)
    return units, "words of no source" if source.text == TEXTS[0] else quote


def judged(outcome: Judgement | Incomplete) -> Judgement:
    assert isinstance(outcome, Judgement), outcome
    return outcome


def failed(outcome: Judgement | Incomplete, reason: IncompleteReason) -> Incomplete:
    assert isinstance(outcome, Incomplete)
    assert outcome.reason is reason
    return outcome


@pytest.mark.parametrize(("mode", "calls"), [(ScoringMode.ANSWER, 2), (ScoringMode.SOURCE, 4), (ScoringMode.PAIR, 7)])
def test_a_perfect_model_gives_exactly_its_matrix_in_every_mode(mode: ScoringMode, calls: int) -> None:
    asked = model()
    outcome, receptions = talk(judging(scoring_mode=mode), asked)
    judgement = judged(outcome)
    assert judgement.key_points == KEY_POINTS
    assert judgement.supports == SUPPORTS
    assert judgement.quotes == {
        (0, 0): Quote("Tea is a"),
        (0, 1): Quote("Coffee comes from"),
        (1, 1): Quote("Coffee comes from"),
    }
    assert judgement.unevidenced == {}
    assert receptions == [Reception.WHOLE] * calls


@given(
    st.lists(st.lists(st.integers(0, 10_000), min_size=4, max_size=4), min_size=1, max_size=4),
    st.sampled_from(ScoringMode),
    st.integers(0, 10_000),
)
def test_whatever_the_shuffle_every_source_gets_its_own_supports(
    rows: list[list[int]], mode: ScoringMode, number: int
) -> None:
    texts = [f"text {index}" for index in range(4)]
    key_points = [KeyPoint(f"point {index}") for index in range(len(rows))]

    def by_index(key_point: str, source: ShownSource) -> tuple[int, str]:
        return rows[int(key_point[-1])][int(source.text[-1])], source.text

    given_answer = replace(answer(texts), key=AnswerKey(answer().key.tenant, AnswerId(f"a-{number}")))
    outcome, _ = talk(judging(given_answer, scoring_mode=mode), FakeModel(key_points, by_index))
    assert judged(outcome).supports == tuple(map(tuple, rows))
    assert all(quote.text == f"text {source}" for (_, source), quote in judged(outcome).quotes.items())


def test_sources_that_need_several_calls_are_judged_as_if_by_one() -> None:
    texts = [f"text {index} " + "word " * 150 for index in range(6)]

    def by_index(_key_point: str, source: ShownSource) -> tuple[int, str]:
        return 1_000 * int(source.text[5]), source.text[:6]

    asked = FakeModel(KEY_POINTS, by_index)
    outcome, _ = talk(judging(answer(texts), ModelLimits(800, 10_000)), asked)
    assert len(asked.asked_of(Stage.SCORE)) > 1
    assert judged(outcome).supports == ((0, 1_000, 2_000, 3_000, 4_000, 5_000),) * 2


def test_no_more_requests_are_built_at_once_than_allowed() -> None:
    subject = judging(limits=ModelLimits(1_000_000, 100_000, calls_at_once_max=2), scoring_mode=ScoringMode.PAIR)
    batches = []
    asked = model()
    while subject.outcome is None:
        batch = subject.requests_to_send()
        batches.append(len(batch))
        for request in batch:
            subject.accept(request, asked.complete(request))
    assert batches == [1, 2, 2, 2]
    assert judged(subject.outcome).supports == SUPPORTS


def test_a_source_too_large_for_the_model_is_named_and_nothing_is_asked_about_it() -> None:
    asked = model()
    outcome, _ = talk(judging(answer([TEXTS[0], "word " * 2_000]), ModelLimits(800, 10_000)), asked)
    incomplete = failed(outcome, IncompleteReason.TOO_LARGE)
    assert incomplete.detail.startswith("sources[1] and the key points do not fit the 800 input tokens")
    assert incomplete.ask_again == ()
    assert asked.asked_of(Stage.SCORE) == []


def test_an_answer_too_large_for_the_model_ends_before_anything_is_asked() -> None:
    subject = judging(replace(answer(), text="word " * 2_000), ModelLimits(800, 10_000))
    assert subject.requests_to_send() == ()
    assert isinstance(subject.outcome, Incomplete)


def test_importance_becomes_the_weight() -> None:
    weighted = tuple(KeyPoint(point.text, weight) for point, weight in zip(KEY_POINTS, (3, 1), strict=True))
    asked = FakeModel(weighted, opinion, weighting=Weighting.IMPORTANCE)
    outcome, _ = talk(judging(weighting=Weighting.IMPORTANCE), asked)
    assert judged(outcome).key_points == weighted


def test_a_refine_call_of_its_own_drops_and_never_rewords() -> None:
    asked = model(dropped=[KEY_POINTS[0].text])
    outcome, _ = talk(judging(refinement=Refinement.OWN_CALL), asked)
    assert [request.stage for request in asked.requests] == [Stage.DECOMPOSE, Stage.REFINE, Stage.SCORE]
    assert judged(outcome).key_points == KEY_POINTS[1:]
    assert judged(outcome).supports == SUPPORTS[1:]


def test_a_refine_call_that_drops_everything_is_asked_once_more_before_it_is_believed() -> None:
    everything = [point.text for point in KEY_POINTS]
    outcome, _ = talk(judging(refinement=Refinement.OWN_CALL), model(dropped=everything))
    assert judged(outcome).key_points == ()
    asked = model(first={Stage.REFINE: [completion('{"drop":["k1","k2"]}')]})
    outcome, _ = talk(judging(refinement=Refinement.OWN_CALL), asked)
    assert judged(outcome).supports == SUPPORTS
    assert len(asked.asked_of(Stage.REFINE)) == 2


def test_no_key_points_are_asked_for_once_more_before_that_is_believed() -> None:
    asked = model(first={Stage.DECOMPOSE: [NO_KEY_POINTS, NO_KEY_POINTS]})
    outcome, _ = talk(judging(), asked)
    assert judged(outcome) == Judgement((), (), {}, 3_000, {}, judged(outcome).shuffle_seed)
    assert len(asked.requests) == 2
    assert "Look again" in asked.requests[1].question


def test_key_points_found_at_the_second_look_count() -> None:
    asked = model(first={Stage.DECOMPOSE: [NO_KEY_POINTS]})
    outcome, _ = talk(judging(), asked)
    assert judged(outcome).supports == SUPPORTS


def test_an_unreadable_reply_is_no_second_opinion_on_having_no_key_points() -> None:
    asked = model(first={Stage.DECOMPOSE: [NO_JSON, NO_KEY_POINTS]})
    outcome, _ = talk(judging(), asked)
    assert judged(outcome).supports == SUPPORTS
    assert len(asked.asked_of(Stage.DECOMPOSE)) == 3


@pytest.mark.parametrize("bad", [NO_JSON, completion(None), completion('{"key_points":[""]}')])
def test_unreadable_key_points_are_asked_for_once_more_and_not_again(bad: Completion) -> None:
    outcome, receptions = talk(judging(), model(first={Stage.DECOMPOSE: [bad]}))
    assert judged(outcome).supports == SUPPORTS
    assert receptions[0] is Reception.UNREADABLE
    asked = model(first={Stage.DECOMPOSE: [bad, bad]})
    incomplete = failed(talk(judging(), asked)[0], IncompleteReason.UNREADABLE)
    assert incomplete.ask_again == (asked.requests[1],)


def test_more_key_points_than_allowed_are_not_cut_to_the_allowed_number() -> None:
    incomplete = failed(talk(judging(key_points_max=1), model())[0], IncompleteReason.UNREADABLE)
    assert "too_many_key_points" in incomplete.detail


@pytest.mark.parametrize("stage", [Stage.DECOMPOSE, Stage.SCORE])
def test_a_reply_that_was_cut_is_asked_for_once_under_a_larger_cap(stage: Stage) -> None:
    """instructor#276: a truncated reply is not a malformed one."""
    asked = model(first={stage: [TRUNCATED]})
    outcome, receptions = talk(judging(), asked)
    assert judged(outcome).supports == SUPPORTS
    first, second = asked.asked_of(stage)
    assert second == replace(first, output_tokens_max=4 * first.output_tokens_max)
    assert receptions.count(Reception.TRUNCATED) == 1


@pytest.mark.parametrize("stage", [Stage.DECOMPOSE, Stage.SCORE])
def test_a_reply_that_is_cut_again_ends_the_judging_and_no_part_of_it_is_believed(stage: Stage) -> None:
    asked = model(first={stage: [TRUNCATED, TRUNCATED]})
    incomplete = failed(talk(judging(), asked)[0], IncompleteReason.TRUNCATED)
    assert incomplete.ask_again == (asked.requests[-1],)


def test_a_cut_reply_is_not_asked_for_again_where_the_model_gives_no_larger_one() -> None:
    asked = model(first={Stage.DECOMPOSE: [TRUNCATED]})
    failed(talk(judging(limits=ModelLimits(1_000_000, 60)), asked)[0], IncompleteReason.TRUNCATED)
    assert len(asked.requests) == 1


def test_of_several_calls_only_the_cut_one_is_asked_again() -> None:
    asked = model(first={Stage.SCORE: [TRUNCATED]})
    outcome, _ = talk(judging(scoring_mode=ScoringMode.SOURCE), asked)
    assert judged(outcome).supports == SUPPORTS
    assert len(asked.asked_of(Stage.SCORE)) == 4


@pytest.mark.parametrize("stage", [Stage.DECOMPOSE, Stage.SCORE])
def test_a_refusal_ends_the_judging_at_once_and_for_good(stage: Stage) -> None:
    subject = judging(scoring_mode=ScoringMode.PAIR)
    incomplete = failed(talk(subject, model(first={stage: [REFUSED]}))[0], IncompleteReason.REFUSED)
    assert incomplete.ask_again == ()
    assert subject.requests_to_send() == ()


def test_an_end_that_nobody_knows_is_a_failure_whatever_the_text() -> None:
    """litellm#24287: an unknown finish reason read as "stop"."""
    text = key_points_reply(KEY_POINTS)
    asked = model(first={Stage.DECOMPOSE: [completion(text, Finish.UNKNOWN)]})
    incomplete = failed(talk(judging(), asked)[0], IncompleteReason.UNKNOWN_FINISH)
    assert incomplete.ask_again == (asked.requests[0],)


def test_only_what_was_missing_or_wrong_is_asked_again_and_all_of_it_at_once() -> None:
    subject = judging()
    asked = model()
    (decompose,) = subject.requests_to_send()
    subject.accept(decompose, asked.complete(decompose))
    (score,) = subject.requests_to_send()
    shown = asked_in(score)
    ids = {source.text: source.source_id for source in shown.sources}
    tea, coffee, moon = (ids[text] for text in TEXTS)
    partial = scores_reply([
        StatedCell("k1", tea, 10_000, "words of no source"),
        StatedCell("k1", coffee, 3_000, "Coffee comes from"),
        StatedCell("k1", moon, 0),
        StatedCell("k2", tea, 0),
        StatedCell("k2", moon, 0),
    ])  # fmt: skip
    assert subject.accept(score, completion(partial)) is Reception.PARTIAL
    (repair,) = subject.requests_to_send()
    assert sorted(asked_in(repair).pairs) == sorted([("k1", tea), ("k2", coffee)])
    assert {source.text for source in asked_in(repair).sources} == {TEXTS[0], TEXTS[1]}
    subject.accept(repair, asked.complete(repair))
    assert isinstance(subject.outcome, Judgement)
    assert subject.outcome.supports == SUPPORTS


def test_what_a_repair_says_of_cells_that_were_accepted_changes_nothing() -> None:
    asked = model(first={Stage.SCORE: [NO_ROWS]})
    subject = judging(scoring_mode=ScoringMode.SOURCE)
    (decompose,) = subject.requests_to_send()
    subject.accept(decompose, asked.complete(decompose))
    for request in subject.requests_to_send():
        subject.accept(request, asked.complete(request))
    (repair,) = subject.requests_to_send()
    everything = [StatedCell(key, source, 0) for key in ("k1", "k2") for source in ("s1", "s2", "s3")]
    subject.accept(repair, completion(scores_reply(everything)))
    assert isinstance(subject.outcome, Judgement)
    repaired = asked_in(repair).sources[0].text
    for row, supports in enumerate(SUPPORTS):
        for column, units in enumerate(supports):
            assert subject.outcome.supports[row][column] == (0 if TEXTS[column] == repaired else units)
    assert subject.ignored[Ignored.NOT_ASKED] == 4


@pytest.mark.parametrize("bad", [NO_JSON, NO_ROWS, completion(None)])
def test_a_cell_still_missing_after_the_repair_is_never_a_number(bad: Completion) -> None:
    asked = model(first={Stage.SCORE: [bad, bad]})
    incomplete = failed(talk(judging(), asked)[0], IncompleteReason.UNSETTLED_CELLS)
    assert incomplete.detail == "cells without a support, asked twice: 6 missing"
    assert incomplete.ask_again == (asked.requests[-1],)


def test_of_several_repairs_only_the_failed_one_is_to_be_bought_anew() -> None:
    asked = model(first={Stage.SCORE: [NO_ROWS, NO_ROWS, NO_ROWS, NO_ROWS]})
    incomplete = failed(talk(judging(scoring_mode=ScoringMode.SOURCE), asked)[0], IncompleteReason.UNSETTLED_CELLS)
    assert incomplete.detail == "cells without a support, asked twice: 2 missing"
    assert incomplete.ask_again == (asked.requests[4],)


def test_a_next_attempt_buys_only_what_left_the_last_one_incomplete() -> None:
    asked = model(first={Stage.SCORE: [NO_ROWS, NO_ROWS]})
    journal: dict[str, Completion] = {}

    def attempt() -> Judgement | Incomplete:
        subject = judging()
        while subject.outcome is None:
            for request in subject.requests_to_send():
                identity = fingerprint(request)
                journal[identity] = journal.get(identity) or asked.complete(request)
                subject.accept(request, journal[identity])
        return subject.outcome

    incomplete = failed(attempt(), IncompleteReason.UNSETTLED_CELLS)
    assert attempt() == incomplete
    assert len(asked.requests) == 3
    for request in incomplete.ask_again:
        del journal[fingerprint(request)]
    assert judged(attempt()).supports == SUPPORTS
    assert len(asked.requests) == 4


def test_a_quote_that_is_not_in_its_source_is_asked_for_again_and_then_located() -> None:
    asked = FakeModel(KEY_POINTS, misquoting)
    outcome, receptions = talk(judging(), asked)
    assert receptions == [Reception.WHOLE, Reception.PARTIAL, Reception.PARTIAL]
    assert judged(outcome).supports == SUPPORTS
    assert judged(outcome).quotes[0, 0] == Quote(TEXTS[0], QuoteOrigin.LOCATED)
    assert len(asked_in(asked.requests[2]).pairs) == 1


def test_a_support_that_no_words_of_the_source_bear_out_is_0_by_rule() -> None:
    def inventing(key_point: str, source: ShownSource) -> tuple[int, str]:
        return (10_000, "words of no source") if source.text == TEXTS[2] else opinion(key_point, source)

    outcome, _ = talk(judging(), FakeModel(KEY_POINTS, inventing))
    assert judged(outcome).supports == SUPPORTS
    assert judged(outcome).unevidenced == {(0, 2): 10_000, (1, 2): 10_000}
    assert (0, 2) not in judged(outcome).quotes


def test_the_model_may_take_a_support_back_when_asked_for_its_quote() -> None:
    def wavering(_key_point: str, _source: ShownSource) -> tuple[int, str]:
        is_first = len(asked.asked_of(Stage.SCORE)) == 1
        return (10_000, "words of no source") if is_first else (0, "")

    asked = FakeModel(KEY_POINTS, wavering)
    outcome, _ = talk(judging(), asked)
    assert judged(outcome).supports == ((0, 0, 0), (0, 0, 0))
    assert judged(outcome).unevidenced == {}


def test_a_quote_is_found_across_an_ellipsis_and_other_quotation_marks() -> None:
    def eliding(key_point: str, source: ShownSource) -> tuple[int, str]:
        return opinion(key_point, source)[0], f"“{source.text.split()[0]} … {source.text.split()[-1]}”"

    outcome, _ = talk(judging(), FakeModel(KEY_POINTS, eliding))
    assert judged(outcome).supports == SUPPORTS


@given(st.data(), st.sampled_from(ScoringMode))
def test_the_order_in_which_replies_come_changes_nothing(data: st.DataObject, mode: ScoringMode) -> None:
    bad = [NO_JSON, NO_ROWS, TRUNCATED, NO_KEY_POINTS]
    by_question: dict[str, Completion] = {}
    asked = FakeModel(KEY_POINTS, misquoting)

    def reply_to(request: CompletionRequest) -> Completion:
        identity = fingerprint(request)
        if identity not in by_question:
            good = asked.complete(request)
            by_question[identity] = data.draw(st.sampled_from([good, good, *bad]))
        return by_question[identity]

    def run(*, backwards: bool) -> tuple[list[str], Judgement | Incomplete]:
        subject = judging(scoring_mode=mode)
        sent = []
        while subject.outcome is None:
            batch = subject.requests_to_send()
            sent += sorted(map(fingerprint, batch))
            for request in reversed(batch) if backwards else batch:
                subject.accept(request, reply_to(request))
        return sent, subject.outcome

    assert run(backwards=False) == run(backwards=True)


texts_of_replies = st.text(st.characters(exclude_categories=()), max_size=60) | st.sampled_from(
    ['{"key_points":["a","b"]}', '{"key_points":[]}', '{"rows":[]}', '{"rows":[{"k":"k1","support":[],"zero":["s1"]}]}']
)


@given(
    st.lists(st.tuples(texts_of_replies, st.sampled_from(Finish)), max_size=30),
    st.sampled_from(ScoringMode),
    st.sampled_from(Refinement),
)
def test_whatever_a_model_says_the_judging_ends_without_an_error_and_within_its_bound(
    said: list[tuple[str, Finish]], mode: ScoringMode, refinement: Refinement
) -> None:
    subject = judging(scoring_mode=mode, refinement=refinement)
    waiting = list(said)
    sent = 0
    while subject.outcome is None:
        request = subject.requests_to_send()[0]
        sent += 1
        subject.accept(request, completion(*(waiting.pop(0) if waiting else ("", Finish.COMPLETE))))
    # Per stage at most three questions for key points; every score call and its repair; each may be cut once.
    assert sent <= 2 * (3 + 3 + 2 * len(TEXTS) * 2)
    if isinstance(subject.outcome, Judgement):
        assert all(len(row) == len(TEXTS) for row in subject.outcome.supports)


def test_a_completion_that_comes_twice_or_late_changes_nothing() -> None:
    subject = judging()
    asked = model()
    (decompose,) = subject.requests_to_send()
    first = asked.complete(decompose)
    assert subject.accept(decompose, first) is Reception.WHOLE
    assert subject.accept(decompose, NO_JSON) is Reception.WHOLE
    assert subject.accept(decompose, REFUSED) is Reception.REFUSED
    outcome, _ = talk(subject, asked)
    assert judged(outcome).supports == SUPPORTS
    subject.accept(decompose, NO_JSON)
    assert subject.outcome is outcome


def test_a_completion_of_another_answers_request_is_a_mistake_of_the_caller() -> None:
    (foreign,) = judging(replace(answer(), text="Another answer.")).requests_to_send()
    with pytest.raises(ValueError, match="not of this conversation"):
        judging().accept(foreign, NO_JSON)


def test_what_had_to_be_scrubbed_is_counted_in_the_answer_and_in_replies() -> None:
    subject = judging(answer(["Tea\x00 is a hot drink in most of the world.", *TEXTS[1:]]))
    assert subject.scrubbed == 1
    key_points = completion('{"key_points":["Tea \\ud800 is hot.\\u0000"]}')
    (decompose,) = subject.requests_to_send()
    subject.accept(decompose, key_points)
    assert subject.scrubbed == 3
    assert "Tea \ufffd is hot.\ufffd" in message_of(subject.requests_to_send()[0])
