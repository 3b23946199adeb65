"""What every call journal keeps: the fake that tests believe, the one in memory, and PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from decimal import Decimal
from uuid import UUID, uuid4

import asyncpg
import pytest
from pydantic import SecretStr

from tests.fakes.journal import FakeCallJournal
from tests.support import calls
from worker.adapters.postgres.database import open_database
from worker.adapters.postgres.journal import PostgresCallJournal, open_call_journal
from worker.adapters.unstored import UnstoredJournal
from worker.core.llm import CompletionUsage, UsageSource
from worker.core.model import Usage
from worker.errors import FatalError
from worker.llm_ports import CallIntent, CallOutcome, CallResult
from worker.settings import PostgresSettings, TextStorage


@dataclass(frozen=True, slots=True)
class Desk:
    """A journal, its clock and its rows."""

    journal: FakeCallJournal | UnstoredJournal | PostgresCallJournal
    pass_time: Callable[[float], Awaitable[None]]
    outcomes: Callable[[], Awaitable[Mapping[UUID, CallOutcome]]]


@pytest.fixture(params=["fake", "unstored", pytest.param("postgres", marks=pytest.mark.postgres)])
def open_desk(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Desk]:
    match request.param:
        case "fake":
            return nullcontext(desk_on_fake())
        case "unstored":
            return nullcontext(desk_in_memory())
        case _:
            return desk_on_postgres(request.getfixturevalue("postgres_dsn"))


@pytest.fixture
async def desk(open_desk: AbstractAsyncContextManager[Desk]) -> AsyncIterator[Desk]:
    async with open_desk as opened:
        yield opened


def desk_on_fake() -> Desk:
    fake = FakeCallJournal()

    async def pass_time(seconds: float) -> None:
        fake.now_s += seconds

    async def outcomes() -> Mapping[UUID, CallOutcome]:
        return {call_id: row.outcome for call_id, row in fake.rows.items()}

    return Desk(fake, pass_time, outcomes)


def desk_in_memory() -> Desk:
    now_s = 0.0
    journal = UnstoredJournal(lambda: now_s)

    async def pass_time(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    async def outcomes() -> Mapping[UUID, CallOutcome]:
        return journal.outcomes()

    return Desk(journal, pass_time, outcomes)


@asynccontextmanager
async def desk_on_postgres(dsn: str) -> AsyncIterator[Desk]:
    sql = await asyncpg.connect(dsn)

    async def pass_time(seconds: float) -> None:
        await sql.execute("UPDATE llm_call_claims SET expires_at = expires_at - make_interval(secs => $1)", seconds)
        await sql.execute("UPDATE llm_calls SET deadline_at = deadline_at - make_interval(secs => $1)", seconds)

    async def outcomes() -> Mapping[UUID, CallOutcome]:
        rows = await sql.fetch("SELECT call_id, outcome FROM llm_calls")
        return {UUID(str(row["call_id"])): CallOutcome(row["outcome"]) for row in rows}

    try:
        async with (
            open_database(PostgresSettings(dsn=SecretStr(dsn))) as database,
            open_call_journal(database, TextStorage.FULL) as journal,
        ):
            yield Desk(journal, pass_time, outcomes)
    finally:
        await sql.close()


async def opened(desk: Desk, intent: CallIntent) -> CallIntent:
    assert await desk.journal.open(intent) is None
    return intent


async def test_a_request_nobody_made_has_no_response(desk: Desk) -> None:
    assert await desk.journal.responses(calls.call_key()) == []


async def test_an_intent_is_on_record_before_its_call(desk: Desk) -> None:
    intent = await opened(desk, calls.intent())
    assert await desk.outcomes() == {intent.call_id: CallOutcome.INTENT}
    assert await desk.journal.responses(intent.call_key) == []


async def test_a_response_is_on_record_with_its_usage_and_cost_for_whoever_asks_the_same(desk: Desk) -> None:
    intent = await opened(desk, calls.intent())
    await desk.journal.close(intent.call_id, calls.complete('{"a": 1}'))
    (found,) = await desk.journal.responses(intent.call_key)
    assert (found.call_id, found.raw, found.usage) == (intent.call_id, '{"a": 1}', calls.USAGE)
    assert found.cost_usd == calls.COST


@pytest.mark.parametrize("raw", ["", "a\x00b", "lone \ud800 surrogate", "é€😀", "<html>502</html>", "x" * (2 * 2**20)])
async def test_a_response_is_evidence_and_comes_back_as_it_was(desk: Desk, raw: str) -> None:
    """kodus-ai PR#1683, sentry PR#10752: NUL and lone surrogates in LLM text broke the write, or were lost."""
    intent = await opened(desk, calls.intent())
    await desk.journal.close(intent.call_id, calls.complete(raw))
    (found,) = await desk.journal.responses(intent.call_key)
    assert found.raw == raw


async def test_responses_come_oldest_first_whoever_bought_them(desk: Desk) -> None:
    for number in range(3):
        intent = await opened(desk, calls.intent(answer_id=f"a-{number}"))
        await desk.journal.close(intent.call_id, calls.complete(f"response {number}"))
    found = await desk.journal.responses(calls.call_key())
    assert [call.raw for call in found] == ["response 0", "response 1", "response 2"]


async def test_while_an_intent_lives_the_same_request_waits_as_long_as_it_may_take(desk: Desk) -> None:
    first = await opened(desk, calls.intent(lives_s=100))
    await desk.pass_time(40)
    wait_s = await desk.journal.open(calls.intent())
    assert wait_s is not None
    assert 40 < wait_s <= 60
    assert await desk.outcomes() == {first.call_id: CallOutcome.INTENT}


async def test_a_response_that_came_since_the_buyer_looked_is_not_bought_again(desk: Desk) -> None:
    """Between the look and the intent lies a wait for the limits: another worker's call may have ended meanwhile."""
    intent = await opened(desk, calls.intent())
    await desk.journal.close(intent.call_id, calls.complete())
    late = replace(calls.intent(), responses_known=0)
    assert await desk.journal.open(late) == 0
    assert await desk.outcomes() == {intent.call_id: CallOutcome.COMPLETE}
    await opened(desk, replace(late, responses_known=1))


async def test_a_call_that_ended_without_a_response_since_is_bought(desk: Desk) -> None:
    for result in (calls.failed(), calls.unknown()):
        intent = await opened(desk, replace(calls.intent(), responses_known=0))
        await desk.journal.close(intent.call_id, result)
    await opened(desk, replace(calls.intent(), responses_known=0))


async def test_of_intents_recorded_together_only_those_that_were_answered_are_held(desk: Desk) -> None:
    answered = await opened(desk, calls.intent("answered"))
    await desk.journal.close(answered.call_id, calls.complete())
    names = ["answered", "new", "another"]
    async with asyncio.TaskGroup() as tasks:
        opening = [
            tasks.create_task(desk.journal.open(replace(calls.intent(name), responses_known=0))) for name in names
        ]
    assert [task.result() for task in opening] == [0, None, None]


async def test_another_request_does_not_wait(desk: Desk) -> None:
    await opened(desk, calls.intent("one"))
    await opened(desk, calls.intent("another"))


async def test_once_a_call_has_ended_the_same_request_may_be_bought_again(desk: Desk) -> None:
    for result in (calls.complete("not what we need"), calls.failed(), calls.unknown()):
        intent = await opened(desk, calls.intent())
        await desk.journal.close(intent.call_id, result)
    await opened(desk, calls.intent())


async def test_opening_again_after_a_commit_of_unknown_outcome_changes_nothing(desk: Desk) -> None:
    intent = await opened(desk, calls.intent())
    await opened(desk, intent)
    assert await desk.outcomes() == {intent.call_id: CallOutcome.INTENT}


async def test_an_intent_past_its_life_becomes_unknown_when_another_takes_its_place(desk: Desk) -> None:
    first = await opened(desk, calls.intent(lives_s=100))
    await desk.pass_time(101)
    second = await opened(desk, calls.intent(lives_s=100))
    assert await desk.outcomes() == {first.call_id: CallOutcome.UNKNOWN, second.call_id: CallOutcome.INTENT}
    assert await desk.journal.open(calls.intent()) is not None


async def test_a_late_response_lands_in_its_own_row_and_its_successor_lives_on(desk: Desk) -> None:
    first = await opened(desk, calls.intent(lives_s=100))
    await desk.pass_time(101)
    second = await opened(desk, calls.intent(lives_s=100))
    await desk.journal.close(first.call_id, calls.complete("late"))
    assert await desk.outcomes() == {first.call_id: CallOutcome.COMPLETE, second.call_id: CallOutcome.INTENT}
    assert [call.raw for call in await desk.journal.responses(first.call_key)] == ["late"]
    assert await desk.journal.open(calls.intent()) is not None


async def test_an_intent_past_its_life_that_nobody_replaced_still_takes_its_response(desk: Desk) -> None:
    intent = await opened(desk, calls.intent(lives_s=100))
    await desk.pass_time(101)
    await desk.journal.close(intent.call_id, calls.complete())
    assert await desk.outcomes() == {intent.call_id: CallOutcome.COMPLETE}


@pytest.mark.parametrize("later", [calls.complete("other"), calls.failed(), calls.unknown()])
async def test_closing_again_changes_nothing(desk: Desk, later: CallResult) -> None:
    """litellm#29292: a write done again billed twice."""
    intent = await opened(desk, calls.intent())
    for result in (calls.complete("first"), calls.complete("first"), later):
        await desk.journal.close(intent.call_id, result)
    (found,) = await desk.journal.responses(intent.call_key)
    assert (found.raw, found.cost_usd) == ("first", calls.COST)
    assert await desk.journal.usage_of(intent.answer_key) == usage(calls=1, cost=calls.COST)


async def test_an_end_without_an_intent_is_fatal_and_takes_no_neighbour_with_it(desk: Desk) -> None:
    intent = await opened(desk, calls.intent())
    async with asyncio.TaskGroup() as tasks:
        good = tasks.create_task(desk.journal.close(intent.call_id, calls.complete()))
        bad = tasks.create_task(told(desk.journal.close(uuid4(), calls.complete())))
    assert good.result() is None
    assert isinstance(bad.result(), FatalError)


async def told(closing: Awaitable[None]) -> Exception | None:
    try:
        await closing
    except FatalError as error:
        return error
    return None


async def test_of_simultaneous_intents_of_one_request_exactly_one_may_call(desk: Desk) -> None:
    async with asyncio.TaskGroup() as tasks:
        opening = [tasks.create_task(desk.journal.open(calls.intent())) for _ in range(20)]
    waits_s = [task.result() for task in opening]
    assert waits_s.count(None) == 1
    assert all(wait_s > 0 for wait_s in waits_s if wait_s is not None)
    assert len(await desk.outcomes()) == 1


@pytest.mark.parametrize("open_desk", ["fake", pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
async def test_a_sweep_turns_what_dead_workers_left_to_unknown_once(desk: Desk) -> None:
    assert not isinstance(desk.journal, UnstoredJournal)
    dead = await opened(desk, calls.intent("dead", lives_s=10))
    alive = await opened(desk, calls.intent("alive", lives_s=100))
    await desk.pass_time(20)
    assert [await desk.journal.sweep(), await desk.journal.sweep()] == [1, 0]
    assert await desk.outcomes() == {dead.call_id: CallOutcome.UNKNOWN, alive.call_id: CallOutcome.INTENT}
    await desk.journal.close(dead.call_id, calls.complete("after all"))
    assert (await desk.outcomes())[dead.call_id] is CallOutcome.COMPLETE


def usage(calls: int, cost: Decimal | None, times: int = 1) -> Usage:
    """`times` complete sample calls' tokens."""
    return Usage(
        calls=calls,
        input_tokens=1_001 * times,
        cache_read_tokens=307 * times,
        cache_write_tokens=11 * times,
        output_tokens=203 * times,
        reasoning_tokens=5 * times,
        cost_usd=cost,
    )


async def test_an_answer_without_calls_cost_nothing(desk: Desk) -> None:
    assert await desk.journal.usage_of(calls.answer_key()) == Usage()


async def test_an_answers_usage_is_that_of_all_its_calls_and_of_no_other(desk: Desk) -> None:
    for name in ("one", "two"):
        intent = await opened(desk, calls.intent(name))
        await desk.journal.close(intent.call_id, calls.complete())
    for answer_id, tenant in (("a-2", "default"), ("a-1", "other")):
        stranger = await opened(desk, calls.intent(f"{tenant}/{answer_id}", answer_id=answer_id, tenant=tenant))
        await desk.journal.close(stranger.call_id, calls.complete())
    assert await desk.journal.usage_of(calls.answer_key()) == usage(calls=2, cost=2 * calls.COST, times=2)


async def test_a_call_that_the_provider_refused_to_do_cost_nothing_and_is_not_counted(desk: Desk) -> None:
    intent = await opened(desk, calls.intent())
    await desk.journal.close(intent.call_id, calls.failed())
    assert await desk.journal.usage_of(intent.answer_key) == Usage()


async def test_a_failed_call_that_was_billed_all_the_same_is_counted(desk: Desk) -> None:
    intent = await opened(desk, calls.intent())
    billed = CallResult(CallOutcome.FAILED, 5, usage=calls.USAGE, prices=calls.PRICES, cost_usd=calls.COST)
    await desk.journal.close(intent.call_id, billed)
    assert await desk.journal.usage_of(intent.answer_key) == usage(calls=1, cost=calls.COST)


@pytest.mark.parametrize("end", [None, calls.unknown(), calls.complete(prices=None)])
async def test_one_call_without_a_known_cost_leaves_the_answer_without_one(desk: Desk, end: CallResult | None) -> None:
    known = await opened(desk, calls.intent("known"))
    await desk.journal.close(known.call_id, calls.complete())
    other = await opened(desk, calls.intent("other"))
    if end is not None:
        await desk.journal.close(other.call_id, end)
    total = await desk.journal.usage_of(known.answer_key)
    assert (total.calls, total.cost_usd) == (2, None)
    assert total.input_tokens == 1_001 * (2 if end == calls.complete(prices=None) else 1)


async def test_who_counted_the_tokens_is_kept(desk: Desk) -> None:
    """inspect_ai PR#4694: a response without usage is billed by an estimate, and says so."""
    estimated = CompletionUsage(7, 3, source=UsageSource.ESTIMATED)
    intent = await opened(desk, calls.intent())
    await desk.journal.close(intent.call_id, calls.complete(usage=estimated))
    (found,) = await desk.journal.responses(intent.call_key)
    assert found.usage == estimated


async def test_a_cost_of_fractions_of_micro_dollars_is_kept_to_ten_decimals_half_to_even(desk: Desk) -> None:
    """dust PR#30413: a good response failed its run because its cost had fractional micro-dollars."""
    intent = await opened(desk, calls.intent())
    result = CallResult(CallOutcome.COMPLETE, 5, raw="{}", cost_usd=Decimal("0.00000000125"))
    await desk.journal.close(intent.call_id, result)
    assert (await desk.journal.usage_of(intent.answer_key)).cost_usd == Decimal("0.0000000012")


async def test_many_calls_at_once_each_keep_their_own(desk: Desk) -> None:
    intents = [calls.intent(f"request {index}", answer_id=f"a-{index}") for index in range(50)]

    async def call(intent: CallIntent) -> None:
        await opened(desk, intent)
        await desk.journal.close(intent.call_id, calls.complete(intent.client_request_id))
        (found,) = await desk.journal.responses(intent.call_key)
        assert found.raw == intent.client_request_id
        assert (await desk.journal.usage_of(intent.answer_key)).calls == 1

    async with asyncio.TaskGroup() as tasks:
        for intent in intents:
            tasks.create_task(call(intent))


def test_results_that_contradict_themselves_are_refused() -> None:
    for wrong in (
        {"outcome": CallOutcome.INTENT},
        {"outcome": CallOutcome.COMPLETE},
        {"outcome": CallOutcome.UNKNOWN, "cost_usd": Decimal(0)},
    ):
        with pytest.raises(ValueError, match="call"):
            CallResult(latency_ms=0, **wrong)
    with pytest.raises(ValueError, match="live"):
        calls.intent(lives_s=0)
