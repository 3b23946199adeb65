"""One call: what is recorded when, what a failure means, and that everything held is given back."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from uuid import UUID

import pytest

from schemas.dead_letter import DeadLetterReason
from tests.fakes.budgets import FakeBooks
from tests.fakes.provider import USAGE, FakeCall, FakePrices, FakeProvider, lost, problem
from tests.support.judging import PRICES, Desk, TimedJournal, asking, in_virtual_time, now_s, request, together
from worker.calls import call_key_of
from worker.calls.failing import REFUSED_S_MAX
from worker.calls.purchasing import GRACE_S
from worker.core.asking import fingerprint
from worker.core.budget import Limits
from worker.core.calls import CallFailure
from worker.core.charging import Dimension
from worker.core.cost import cost_usd
from worker.core.llm import CompletionUsage
from worker.errors import FatalError, PermanentError, RetryableError, UnavailableError
from worker.llm_ports import CallIntent, CallOutcome, CallResult, JournaledCall, ProviderDownError
from worker.settings import LimiterSettings, LlmSettings

COST = cost_usd(USAGE, PRICES)
RESERVED = Decimal("0.0004975")
RECORDING_S = LlmSettings().recording_s
"""78 input tokens, all written to the cache, and 100 of output."""
TRANSIENT = problem(CallFailure.TRANSIENT)


def dear(*, tenant_usd: Decimal | None = None, total_usd: Decimal | None = None) -> Limits:
    return Limits(total_usd_per_day=total_usd, tenant_usd_per_day=tenant_usd)


async def cancelled(desk: Desk, *, after_s: float) -> None:
    """A call whose caller leaves."""
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(desk.calls.completion(request(), asking()))
        await asyncio.sleep(after_s)
        call.cancel()


# What is on record, and when


@in_virtual_time
async def test_the_intent_is_on_record_before_the_call_and_the_response_before_anybody_has_it() -> None:
    desk = Desk()
    seen: list[tuple[str, CallOutcome]] = []

    def note(call: FakeCall) -> None:
        (row,) = desk.journal.rows.values()
        seen.append((row.intent.client_request_id, row.outcome))
        assert call.client_request_id == row.intent.client_request_id

    desk.provider.on_call = note
    completed = await desk.calls.completion(request(), asking())
    ((call_id, outcome),) = seen
    assert outcome is CallOutcome.INTENT
    row = desk.journal.rows[completed.call_id]
    assert (str(completed.call_id), row.outcome) == (call_id, CallOutcome.COMPLETE)
    assert row.result is not None
    assert (row.result.raw, row.result.usage) == (completed.completion.raw, USAGE)
    assert (row.cost_usd, row.result.prices, row.result.provider_request_id) == (COST, PRICES, "req-1")
    assert (row.result.latency_ms, completed.bought) == (1_000, True)
    assert not desk.leaks()


@in_virtual_time
async def test_a_response_on_record_is_not_bought_again() -> None:
    desk = Desk()
    first = await desk.calls.completion(request(), asking())
    again = await desk.calls.completion(request(), asking())
    assert (again.completion, again.call_id, again.bought) == (first.completion, first.call_id, False)
    assert len(desk.provider.calls) == 1


@in_virtual_time
async def test_a_response_that_led_nowhere_is_passed_over() -> None:
    desk = Desk()
    first = await desk.calls.completion(request(), asking())
    second = await desk.calls.completion(request(), asking(), tried={first.call_id})
    assert second.bought
    third = await desk.calls.completion(request(), asking(), tried={first.call_id})
    assert (third.call_id, third.bought) == (second.call_id, False)
    assert len(desk.provider.calls) == 2


def test_a_call_key_tells_provider_model_and_everything_that_is_asked() -> None:
    provider = FakeProvider.__new__(FakeProvider)
    other = FakeProvider.__new__(FakeProvider)
    other.model = "another"
    asked = fingerprint(request())
    others = [
        request("two"),
        replace(request(), output_tokens_max=101),
        replace(request(), schema={"type": "object"}),
        replace(request(), instructions="others"),
    ]
    keys = {call_key_of(provider, asked), call_key_of(other, asked)}
    keys |= {call_key_of(provider, fingerprint(given)) for given in others}
    assert len(keys) == 6
    assert call_key_of(provider, fingerprint(request())) in keys


# What a failure means


@pytest.mark.parametrize("failure", [CallFailure.THROTTLED, CallFailure.OVERLOADED])
@pytest.mark.parametrize("status", [429, 529, 503, 200])
@in_virtual_time
async def test_a_refusal_of_the_providers_is_waited_for_and_uses_up_nothing(failure: CallFailure, status: int) -> None:
    """Under whatever status it came: one under 200, or a 503, must not be tried again at once."""
    desk = Desk()
    desk.provider.tell(*[problem(failure, status=status)] * 4)
    completed = await desk.calls.completion(request(), asking())
    assert completed.bought
    assert now_s() > 4 + 1 + 1 + 2 + 4 + 8 - 1e-6, "the pauses double"
    assert desk.outcomes() == {CallOutcome.FAILED: 4, CallOutcome.COMPLETE: 1}
    assert (await desk.journal.usage_of(asking().answer_key)).calls == 1
    assert not desk.leaks()


@in_virtual_time
async def test_a_call_that_is_refused_for_ten_minutes_waits_on_as_in_an_outage() -> None:
    desk = Desk()
    desk.provider.fails_always = lambda _: problem(CallFailure.THROTTLED, status=429)
    with pytest.raises(ProviderDownError, match="again and again"):
        await desk.calls.completion(request(), asking())
    assert now_s() >= REFUSED_S_MAX


@in_virtual_time
async def test_a_passing_failure_is_tried_again_after_pauses_that_grow() -> None:
    desk = Desk()
    desk.provider.tell(TRANSIENT, TRANSIENT, TRANSIENT)
    assert (await desk.calls.completion(request(), asking())).bought
    assert now_s() == pytest.approx(4 * 1 + 0.5 + 1 + 2)


@in_virtual_time
async def test_a_request_that_fails_while_others_are_answered_uses_up_an_attempt() -> None:
    desk = Desk()
    desk.provider.fails_always = lambda asked: TRANSIENT if asked.question == "bad" else None

    async def others() -> None:
        for number in range(20):
            await desk.calls.completion(request(f"good {number}"), asking("other"))

    failed, _ = await together(desk.calls.completion(request("bad"), asking()), others())
    assert isinstance(failed, RetryableError)
    assert failed.exhausted_reason is DeadLetterReason.ATTEMPTS_EXHAUSTED
    assert sum(call.request.question == "bad" for call in desk.provider.calls) == 4


@in_virtual_time
async def test_a_provider_that_answers_nobody_is_down_and_no_records_fault() -> None:
    desk = Desk()
    desk.provider.fails_always = lambda _: TRANSIENT
    with pytest.raises(ProviderDownError, match="no other call was answered"):
        await desk.calls.completion(request(), asking())
    assert desk.outcomes() == {CallOutcome.FAILED: 4}


@in_virtual_time
async def test_once_the_breaker_is_open_no_call_is_made_and_nothing_used_up() -> None:
    desk = Desk()
    desk.provider.fails_always = lambda _: TRANSIENT
    ends = await together(*(desk.calls.completion(request(str(n)), asking(f"a-{n}")) for n in range(20)))
    assert {type(end) for end in ends} == {ProviderDownError}
    assert len(desk.provider.calls) <= 20, "twenty were on their way, and then none"
    assert not desk.leaks()
    desk.provider.fails_always = lambda _: None
    await asyncio.sleep(15)
    assert (await desk.calls.completion(request("0"), asking("a-0"))).bought


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (CallFailure.QUOTA, ProviderDownError),
        (CallFailure.DENIED, FatalError),
        (CallFailure.REFUSED, PermanentError),
        (CallFailure.REJECTED, PermanentError),
    ],
)
@in_virtual_time
async def test_what_waiting_does_not_mend_is_told_at_once(failure: CallFailure, error: type[Exception]) -> None:
    desk = Desk()
    desk.provider.tell(problem(failure, status=400))
    with pytest.raises(error) as raised:
        await desk.calls.completion(request(), asking())
    if isinstance(raised.value, PermanentError):
        assert raised.value.reason is DeadLetterReason.JUDGE_REFUSED
    assert len(desk.provider.calls) == 1
    assert desk.outcomes() == {CallOutcome.FAILED: 1}
    assert not desk.leaks()


@in_virtual_time
async def test_responses_that_are_lost_one_after_another_stop_the_calls() -> None:
    """A gateway that spoils each response costs money at each try: it counts as an outage, a 200 or not."""
    desk = Desk()
    desk.provider.fails_always = lambda _: replace(problem(CallFailure.TRANSIENT, lost=True), status=200)
    for _ in range(50):
        with pytest.raises(UnavailableError):
            await desk.calls.completion(request(), asking())
        await asyncio.sleep(1)
    assert len(desk.provider.calls) <= 5 + now_s() / 15


# A response that never came


@in_virtual_time
async def test_a_lost_response_is_unknown_and_keeps_what_was_set_aside() -> None:
    desk = Desk(budget_limits=dear(total_usd=Decimal(1)))
    desk.provider.tell(*lost())
    assert (await desk.calls.completion(request(), asking())).bought
    assert desk.outcomes() == {CallOutcome.UNKNOWN: 1, CallOutcome.COMPLETE: 1}
    (lost_row, _) = desk.journal.rows.values()
    assert (lost_row.cost_usd, lost_row.intent.reserved_usd) == (None, RESERVED)
    (lease,) = desk.budgets.leases.values()
    assert lease.spent == RESERVED + COST
    assert (await desk.journal.usage_of(asking().answer_key)).cost_usd is None, "never 0 for unknown"


@in_virtual_time
async def test_a_call_without_end_is_ended_by_its_deadline() -> None:
    desk = Desk(llm=LlmSettings(call_timeout_s=30, transient_failures_max=1))
    desk.provider.latency_s = 10_000
    with pytest.raises(ProviderDownError, match="no response within 30 s"):
        await desk.calls.completion(request(), asking())
    assert now_s() == 30 + GRACE_S
    assert desk.provider.calls[0].timeout_s == 30
    assert desk.outcomes() == {CallOutcome.UNKNOWN: 1}
    assert not desk.leaks()


@in_virtual_time
async def test_a_call_cancelled_in_flight_is_unknown_and_charged_all_that_it_may_cost() -> None:
    limits = LimiterSettings(tokens_per_minute=6_000, burst_s=60, initial_burst_s=60)
    desk = Desk(budget_limits=dear(total_usd=Decimal(1)), limits=limits)
    desk.provider.latency_s = 0.01
    await cancelled(desk, after_s=0.005)
    (row,) = desk.journal.rows.values()
    assert (row.outcome, row.result and row.result.detail) == (CallOutcome.UNKNOWN, "cancelled in flight")
    (lease,) = desk.budgets.leases.values()
    assert lease.spent == RESERVED
    assert desk.limiter.state().account.available[Dimension.TOKENS] == 6_000 - 178


@in_virtual_time
async def test_what_a_call_used_beyond_its_estimate_is_charged_against_the_limits_too() -> None:
    limits = LimiterSettings(tokens_per_minute=6_000, burst_s=60, initial_burst_s=60)
    desk = Desk(limits=limits)
    desk.provider.latency_s = 0
    await desk.calls.completion(request(), asking())
    assert desk.limiter.state().account.available[Dimension.TOKENS] == 6_000 - (700 + 100 + 200 + 50)


# Another worker's call of the same request


@in_virtual_time
async def test_a_live_call_of_another_worker_is_waited_for_and_its_response_used() -> None:
    first = Desk()
    second = Desk(journal=first.journal)
    first.provider.latency_s = 60
    ends = await together(first.calls.completion(request(), asking()), second.calls.completion(request(), asking()))
    assert [end.bought for end in ends] == [True, False]
    assert second.provider.calls == []
    assert now_s() <= 61 + 1e-6
    assert not second.leaks()


@in_virtual_time
async def test_a_call_of_a_killed_worker_is_bought_again_when_its_life_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = Desk(llm=LlmSettings(call_timeout_s=100))
    alive = Desk(journal=dead.journal)
    dead.provider.latency_s = 10_000
    with monkeypatch.context() as killed:
        killed.setattr(dead.journal, "close", _says_nothing)
        await cancelled(dead, after_s=1)
    (intent,) = (row.intent for row in dead.journal.rows.values())
    completed = await alive.calls.completion(request(), asking())
    assert completed.bought
    assert 100 + 2 * RECORDING_S < intent.lives_s <= now_s() <= intent.lives_s + 3
    assert alive.outcomes() == {CallOutcome.UNKNOWN: 1, CallOutcome.COMPLETE: 1}


async def _says_nothing(call_id: UUID, result: CallResult) -> None:
    """As a process that is gone."""


@in_virtual_time
async def test_a_response_that_came_while_a_call_stood_in_line_is_used_instead() -> None:
    """Between a look into the journal and the call lies the limiter's line: another worker's call may end there."""
    first = Desk()
    second = Desk(journal=first.journal, limits=LimiterSettings(calls_in_flight=1))
    second.provider.latency_s = 30
    busy, used, bought = await together(
        second.calls.completion(request("busy"), asking("other")),
        second.calls.completion(request(), asking(admission=1)),
        first.calls.completion(request(), asking()),
    )
    assert (busy.bought, bought.bought, used.bought) == (True, True, False)
    assert used.call_id == bought.call_id
    assert len(second.provider.calls) == 1


# The database


class Flaky(TimedJournal):
    """Says UnavailableError as often as told, having done what it was asked or not."""

    def __init__(self) -> None:
        super().__init__()
        self.opens_lost = 0
        self.closes_lost = 0
        self.does_it_all_the_same = False

    async def open(self, intent: CallIntent) -> float | None:
        if self.opens_lost:
            self.opens_lost -= 1
            if self.does_it_all_the_same:
                await super().open(intent)
            raise UnavailableError("the outcome of the commit is unknown")
        return await super().open(intent)

    async def close(self, call_id: UUID, result: CallResult) -> None:
        if self.closes_lost:
            self.closes_lost -= 1
            raise UnavailableError("the database is down")
        await super().close(call_id, result)


@in_virtual_time
async def test_a_paid_response_outlasts_a_database_that_is_down() -> None:
    journal = Flaky()
    journal.closes_lost = 50
    desk = Desk(journal=journal)
    completed = await desk.calls.completion(request(), asking())
    assert completed.bought
    assert len(desk.provider.calls) == 1
    assert desk.outcomes() == {CallOutcome.COMPLETE: 1}
    assert now_s() > 200


@pytest.mark.parametrize("done", [True, False])
@in_virtual_time
async def test_an_intent_of_unknown_outcome_is_looked_after_and_does_not_block_its_own_call(done: bool) -> None:
    journal = Flaky()
    journal.opens_lost, journal.does_it_all_the_same = 3, done
    desk = Desk(journal=journal)
    assert (await desk.calls.completion(request(), asking())).bought
    assert desk.outcomes() == {CallOutcome.COMPLETE: 1}
    assert now_s() < 5


class SlowToOpen(TimedJournal):
    async def open(self, intent: CallIntent) -> float | None:
        held_s = await super().open(intent)
        await asyncio.sleep(100)
        return held_s


@in_virtual_time
async def test_a_call_whose_intent_was_slow_to_record_ends_within_the_life_of_its_intent() -> None:
    """Else another worker would take over its key, and buy the same."""
    desk = Desk(journal=SlowToOpen(), llm=LlmSettings(call_timeout_s=120))
    await desk.calls.completion(request(), asking())
    (call,) = desk.provider.calls
    (row,) = desk.journal.rows.values()
    assert call.timeout_s == 120 - (100 - RECORDING_S)
    assert 100 + call.timeout_s + GRACE_S + RECORDING_S <= row.intent.lives_s


@in_virtual_time
async def test_nothing_is_sent_while_the_database_is_down() -> None:
    desk = Desk()
    desk.journal.down = True
    with pytest.raises(UnavailableError) as raised:
        await desk.calls.completion(request(), asking())
    assert not isinstance(raised.value, ProviderDownError), "no reason to ask another judge"
    assert desk.provider.calls == []


# Budgets


@in_virtual_time
async def test_a_spent_total_waits_for_its_window_and_a_tenants_own_sets_its_records_aside() -> None:
    desk = Desk(budget_limits=dear(total_usd=Decimal("0.0010"), tenant_usd=Decimal("0.0006")))
    desk.provider.usage = CompletionUsage(input_tokens=80, output_tokens=80)  # 0.0004 USD
    await desk.calls.completion(request("1"), asking(tenant="greedy"))
    with pytest.raises(PermanentError) as spent:
        await desk.calls.completion(request("2"), asking(tenant="greedy"))
    assert spent.value.reason is DeadLetterReason.BUDGET_EXHAUSTED
    await desk.calls.completion(request("3"), asking(tenant="modest"))
    with pytest.raises(UnavailableError) as waits:
        await desk.calls.completion(request("4"), asking(tenant="third"))
    assert waits.value.retry_after_s == pytest.approx(12 * 3_600, abs=10)
    assert not isinstance(waits.value, ProviderDownError), "a spent budget is no reason to spend it elsewhere"
    assert len(desk.provider.calls) == 2
    assert not desk.leaks()


@pytest.mark.parametrize("limits", [dear(tenant_usd=Decimal("0.0025")), dear(total_usd=Decimal("0.0025"))])
@in_virtual_time
async def test_where_money_is_only_set_aside_calls_wait_for_those_in_flight(limits: Limits) -> None:
    """Reservations are the most that calls can cost: together they can fill a budget that is hardly spent."""
    desk = Desk(budget_limits=limits)
    desk.provider.usage = CompletionUsage(input_tokens=10, output_tokens=1)
    ends = await together(*(desk.calls.completion(request(str(n)), asking(f"a-{n}")) for n in range(40)))
    assert [end.bought for end in ends] == [True] * 40
    assert desk.provider.in_flight_max == 5
    assert not desk.leaks()


@in_virtual_time
async def test_two_workers_together_never_pass_a_budget() -> None:
    books, limits = FakeBooks(), dear(total_usd=Decimal("0.02"))
    desks = [Desk(books=books, budget_limits=limits) for _ in range(2)]
    for desk in desks:
        desk.provider.usage = CompletionUsage(input_tokens=75, output_tokens=100)
    ends = await together(
        *(desk.calls.completion(request(f"{index} {n}"), asking(f"a-{n}"))
          for index, desk in enumerate(desks) for n in range(60))
    )  # fmt: skip
    bought = sum(not isinstance(end, Exception) for end in ends)
    spent = sum((row.cost_usd or Decimal(0) for desk in desks for row in desk.journal.rows.values()), Decimal(0))
    assert 35 <= bought <= 42
    assert spent <= Decimal("0.02")


@in_virtual_time
async def test_a_model_without_a_price_costs_nobody_knows_what_and_says_so_once() -> None:
    desk = Desk(prices=FakePrices(None))
    for name in ("1", "2"):
        await desk.calls.completion(request(name), asking())
    rows = list(desk.journal.rows.values())
    assert [(row.cost_usd, row.intent.reserved_usd) for row in rows] == [(None, None)] * 2
    assert rows[0].result is not None
    assert rows[0].result.usage == USAGE
    assert (await desk.journal.usage_of(asking().answer_key)).cost_usd is None


# Nothing leaks


STEPS = range(1, 40)


class SlowJournal(TimedJournal):
    """Each of its steps takes a moment, during which its caller may be cancelled; what was begun is done."""

    async def responses(self, call_key: bytes) -> Sequence[JournaledCall]:
        await asyncio.sleep(0.1)
        return await super().responses(call_key)

    async def open(self, intent: CallIntent) -> float | None:
        held_s = await super().open(intent)
        await asyncio.sleep(0.1)
        return held_s

    async def close(self, call_id: UUID, result: CallResult) -> None:
        await super().close(call_id, result)
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("scene", ["answered", "lost", "refused", "held"])
@in_virtual_time
async def test_a_call_cancelled_at_any_moment_gives_back_all_it_held(step: int, scene: str) -> None:
    """sqlalchemy#6652, litellm#18730: what is held while a task is cancelled leaks. Every 50 ms of a call's life."""
    desk = Desk(journal=SlowJournal(), budget_limits=dear(total_usd=Decimal(1), tenant_usd=Decimal(1)))
    desk.provider.latency_s = 0.5
    if scene == "lost":
        desk.provider.tell(*lost())
    if scene == "refused":
        desk.provider.tell(problem(CallFailure.THROTTLED, status=429))
    if scene == "held":
        other = Desk(journal=desk.journal)
        other.provider.latency_s = 0.4
    async with asyncio.TaskGroup() as tasks:
        twin = tasks.create_task(other.calls.completion(request(), asking())) if scene == "held" else None
        call = tasks.create_task(desk.calls.completion(request(), asking()))
        await asyncio.sleep(step * 0.05)
        call.cancel()
        await asyncio.wait([call])
        if twin is not None:
            await twin
    assert not desk.leaks()
    intents = [row for row in desk.journal.rows.values() if row.outcome is CallOutcome.INTENT]
    assert intents == []
    # And the next owner goes on at once.
    since_s = now_s()
    await desk.calls.completion(request(), asking())
    assert now_s() - since_s < 4


@in_virtual_time
async def test_a_bug_in_a_provider_leaves_nothing_behind_but_its_row() -> None:
    desk = Desk()
    desk.provider.tell(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await desk.calls.completion(request(), asking())
    assert desk.outcomes() == {CallOutcome.UNKNOWN: 1}
    assert not desk.leaks()
