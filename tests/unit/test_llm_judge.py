"""One answer through a language model: what is asked again, what is used again, and what an attempt is."""

import asyncio
from dataclasses import replace
from decimal import Decimal

import pytest

from schemas.dead_letter import DeadLetterReason
from tests.fakes.language_model import REFUSED, FakeModel, completion
from tests.fakes.provider import USAGE, FakeCall, problem
from tests.support.judging import (
    KEY_POINTS,
    PRICES,
    SUPPORTS,
    Desk,
    answer,
    asking,
    in_virtual_time,
    now_s,
    opinion,
    together,
)
from worker.core.calls import CallFailure, CallProblem
from worker.core.cost import cost_usd
from worker.core.llm import Completion, Finish, Stage
from worker.core.model import Answer, AnswerKey, Judgement, Usage
from worker.core.prompts import ScoringMode
from worker.errors import FatalError, PermanentError, RetryableError
from worker.llm_judge import Admissions
from worker.llm_ports import CallOutcome, ProviderDownError
from worker.settings import LimiterSettings

COST = cost_usd(USAGE, PRICES)
SCORES = len(SUPPORTS) * len(SUPPORTS[0])
NO_JSON = completion("I would rather not say.")
UNKNOWN = completion("…", Finish.UNKNOWN)
LOST = problem(CallFailure.TRANSIENT, lost=True)


def model(**first: list[Completion]) -> FakeModel:
    return FakeModel(KEY_POINTS, opinion, first={Stage(stage): replies for stage, replies in first.items()})


async def until_judged(desk: Desk, given: Answer | None = None) -> tuple[Judgement, int]:
    """As `settle` would: again after each failed attempt; with how many there were."""
    for attempt in range(1, 100):
        try:
            return await desk.judge.judge(given or answer()), attempt
        except RetryableError:
            continue
    raise AssertionError("attempts without end")


@pytest.mark.parametrize(("mode", "calls"), [(ScoringMode.ANSWER, 2), (ScoringMode.SOURCE, 4), (ScoringMode.PAIR, 7)])
@in_virtual_time
async def test_a_judgement_is_the_models_matrix_and_costs_what_its_calls_cost(mode: ScoringMode, calls: int) -> None:
    desk = Desk(scoring_mode=mode)
    judgement = await desk.judge.judge(answer())
    assert (judgement.key_points, judgement.supports) == (KEY_POINTS, SUPPORTS)
    assert judgement.usage == Usage(calls, 700 * calls, 100 * calls, 0, 200 * calls, 50 * calls, COST * calls)
    assert desk.outcomes() == {CallOutcome.COMPLETE: calls}
    assert desk.provider.in_flight_max == max(1, calls - 1), "what may be asked at once is asked at once"
    assert now_s() == 2
    assert desk.judge.unfinished == 0
    assert not desk.leaks()


@in_virtual_time
async def test_a_reply_is_read_only_once_it_is_on_record() -> None:
    desk = Desk()
    parsed: list[bool] = []
    desk.model.first[Stage.SCORE] = []

    def note(call: FakeCall) -> None:
        # The second request quotes what the first reply said: by then that reply is on record.
        parsed.append(all(row.outcome is CallOutcome.COMPLETE for row in list(desk.journal.rows.values())[:-1]))

    desk.provider.on_call = note
    await desk.judge.judge(answer())
    assert parsed == [True, True]


# Attempts


@in_virtual_time
async def test_a_bad_reply_uses_up_an_attempt_and_what_was_good_is_used_again() -> None:
    desk = Desk(attempts_max=3, model=model(score=[UNKNOWN]))
    judgement, attempts = await until_judged(desk)
    assert (attempts, judgement.supports) == (2, SUPPORTS)
    assert [call.request.stage for call in desk.provider.calls] == [Stage.DECOMPOSE, Stage.SCORE, Stage.SCORE]
    assert judgement.usage.calls == 3, "the bad reply was paid for, too"
    assert judgement.usage.cost_usd == 3 * COST


@in_virtual_time
async def test_only_the_part_that_was_bad_is_bought_anew() -> None:
    desk = Desk(scoring_mode=ScoringMode.PAIR, model=model(score=[completion("{}")] * 2 + [UNKNOWN]))
    judgement, attempts = await until_judged(desk)
    asked = desk.provider.asked(Stage.SCORE)
    assert (attempts, judgement.supports) == (2, SUPPORTS)
    assert len(asked) > SCORES
    assert len({request.question + request.context for request in asked}) == len(asked) - 1, "one of them twice"


@in_virtual_time
async def test_attempts_are_counted_by_the_journal_across_crashes() -> None:
    first = Desk(attempts_max=3, model=model(score=[UNKNOWN] * 2))
    for _ in range(2):
        with pytest.raises(RetryableError) as raised:
            await first.judge.judge(answer())
        assert raised.value.exhausted_reason is DeadLetterReason.JUDGE_INCOMPLETE
    after_a_crash = Desk(attempts_max=3, model=model(score=[UNKNOWN]), journal=first.journal)
    with pytest.raises(PermanentError) as ended:
        await after_a_crash.judge.judge(answer())
    assert ended.value.reason is DeadLetterReason.JUDGE_INCOMPLETE
    assert "in 3 attempts" in ended.value.detail
    assert [call.request.stage for call in after_a_crash.provider.calls] == [Stage.SCORE], "the last one that was left"
    after_another = Desk(attempts_max=3, journal=first.journal)
    with pytest.raises(PermanentError):
        await after_another.judge.judge(answer())
    assert after_another.provider.calls == [], "none is left, however often it is delivered"


@in_virtual_time
async def test_a_replayed_dead_letter_has_a_new_budget_of_attempts_and_uses_what_was_good() -> None:
    first = Desk(attempts_max=2, model=model(score=[UNKNOWN] * 2))
    with pytest.raises(PermanentError):
        await until_judged(first)
    replayed = Desk(attempts_max=2, journal=first.journal)
    judgement, _ = await until_judged(replayed, replace(answer(), replays=1))
    assert judgement.supports == SUPPORTS
    assert [call.request.stage for call in replayed.provider.calls] == [Stage.SCORE]


@in_virtual_time
async def test_a_bad_response_on_record_is_never_taken_for_a_good_one() -> None:
    first = Desk(model=model(decompose=[NO_JSON] * 2))
    with pytest.raises(RetryableError):
        await first.judge.judge(answer())
    second = Desk(journal=first.journal)
    judgement, attempts = await until_judged(second)
    assert (judgement.supports, attempts) == (SUPPORTS, 1)
    assert [call.request.stage for call in second.provider.calls] == [Stage.DECOMPOSE, Stage.SCORE]


@in_virtual_time
async def test_a_redelivered_answer_is_judged_from_the_journal_alone() -> None:
    first = Desk(scoring_mode=ScoringMode.SOURCE)
    before = await first.judge.judge(answer())
    second = Desk(scoring_mode=ScoringMode.SOURCE, journal=first.journal)
    assert await second.judge.judge(answer()) == before
    assert second.provider.calls == []


@pytest.mark.parametrize("reply", [REFUSED, problem(CallFailure.REFUSED), problem(CallFailure.REJECTED)])
@in_virtual_time
async def test_a_refusal_ends_the_answer_at_once(reply: Completion | CallProblem) -> None:
    desk = Desk(model=model(score=[reply] if isinstance(reply, Completion) else []))
    if isinstance(reply, CallProblem):
        desk.provider.tell(None, reply)
    with pytest.raises(PermanentError) as raised:
        await desk.judge.judge(answer())
    assert raised.value.reason is DeadLetterReason.JUDGE_REFUSED
    assert len(desk.provider.calls) == 2
    assert desk.judge.unfinished == 0, "its place in the order is given up"


# Several calls at once


@in_virtual_time
async def test_calls_in_flight_are_not_wasted_when_one_of_them_fails() -> None:
    desk = Desk(scoring_mode=ScoringMode.PAIR)
    desk.provider.tell(None, None, problem(CallFailure.QUOTA))
    with pytest.raises(ProviderDownError):
        await desk.judge.judge(answer())
    assert desk.outcomes() == {CallOutcome.COMPLETE: 1 + SCORES - 1, CallOutcome.FAILED: 1}
    assert (await desk.judge.judge(answer())).supports == SUPPORTS
    assert len(desk.provider.calls) == 1 + SCORES + 1, "the one that failed, and no other"


@pytest.mark.parametrize("by_reply", [True, False])
@in_virtual_time
async def test_calls_still_in_line_are_not_bought_for_an_answer_that_is_lost(by_reply: bool) -> None:
    limits = LimiterSettings(calls_in_flight=2)
    desk = Desk(scoring_mode=ScoringMode.PAIR, limits=limits, model=model(score=[REFUSED] if by_reply else []))
    if not by_reply:
        desk.provider.tell(None, problem(CallFailure.REFUSED))
    with pytest.raises(PermanentError) as raised:
        await desk.judge.judge(answer())
    assert raised.value.reason is DeadLetterReason.JUDGE_REFUSED
    assert len(desk.provider.calls) <= 1 + 2 + 1, "those in flight when it was refused"
    assert not desk.leaks()


@in_virtual_time
async def test_of_several_failures_the_one_that_waiting_does_not_mend_decides() -> None:
    desk = Desk(scoring_mode=ScoringMode.PAIR)
    desk.provider.tell(None, problem(CallFailure.QUOTA), problem(CallFailure.REJECTED), problem(CallFailure.DENIED))
    with pytest.raises(FatalError):
        await desk.judge.judge(answer())
    desk = Desk(scoring_mode=ScoringMode.PAIR)
    desk.provider.tell(None, problem(CallFailure.QUOTA), problem(CallFailure.REJECTED))
    with pytest.raises(PermanentError):
        await desk.judge.judge(answer())


# Many answers


@in_virtual_time
async def test_an_answer_that_comes_again_keeps_its_place() -> None:
    desk = Desk(limits=LimiterSettings(calls_in_flight=1), model=model(decompose=[UNKNOWN]))
    ended: list[str] = []

    async def judged(answer_id: str) -> None:
        await until_judged(desk, answer(answer_id))
        ended.append(answer_id)

    await together(*(judged(f"a-{number}") for number in range(5)))
    assert ended.index("a-0") <= 1, "one other call was let in while its own reply was read"


@in_virtual_time
async def test_an_answer_that_waited_out_an_outage_keeps_its_place_too() -> None:
    desk = Desk(limits=LimiterSettings(calls_in_flight=1))
    desk.provider.tell(problem(CallFailure.QUOTA))
    with pytest.raises(ProviderDownError):
        await desk.judge.judge(answer("old"))
    ended: list[str] = []

    async def judged(answer_id: str) -> None:
        await desk.judge.judge(answer(answer_id))
        ended.append(answer_id)

    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(judged(f"new-{number}"))
        await asyncio.sleep(0.5)
        tasks.create_task(judged("old"))
    assert ended.index("old") <= 1


def test_an_answer_that_has_its_judgement_or_its_dead_letter_keeps_no_place() -> None:
    admissions = Admissions()
    first, second = asking("a-1").answer_key, asking("a-2").answer_key
    assert [admissions.of(first), admissions.of(second), admissions.of(first)] == [0, 1, 0]
    admissions.forget(first)
    admissions.forget(first)
    assert [admissions.of(first), admissions.of(second)] == [2, 1]


def test_places_in_the_order_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.llm_judge.UNFINISHED_MAX", 10)
    admissions = Admissions()
    keys: list[AnswerKey] = [asking(f"a-{number}").answer_key for number in range(25)]
    assert [admissions.of(key) for key in keys] == list(range(25))
    assert [admissions.of(key) for key in keys[-10:]] == list(range(15, 25))
    assert admissions.of(keys[0]) == 25


@in_virtual_time
async def test_one_request_that_always_fails_does_not_hold_up_others_and_ends() -> None:
    """A record whose request the provider cannot serve, in the midst of others that it can."""
    desk = Desk(attempts_max=3)
    desk.provider.fails_always = lambda asked: LOST if "poison" in asked.question else None

    async def others() -> int:
        for number in range(30):
            await desk.judge.judge(answer(f"a-{number}"))
        return 30

    outcome, done = await together(desk.judge.judge(replace(answer("bad"), query="poison")), others())
    assert isinstance(outcome, RetryableError)
    assert done == 30


@in_virtual_time
async def test_a_call_that_was_lost_leaves_the_answers_cost_unknown_and_its_tokens_a_lower_bound() -> None:
    desk = Desk()
    desk.provider.tell(LOST)
    judgement = await desk.judge.judge(answer())
    assert judgement.usage == Usage(3, 1_400, 200, 0, 400, 100, None)
    known = [row.cost_usd for row in desk.journal.rows.values() if row.cost_usd is not None]
    assert sum(known, Decimal(0)) == 2 * COST
