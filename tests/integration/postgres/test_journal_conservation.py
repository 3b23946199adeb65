"""Every billed call has exactly one row, under every fault; and what would break that is found."""

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from uuid import UUID

import asyncpg
import pytest

from tests.support import calls
from tests.support.journals import EXPIRE, FAULTS, open_all, open_journal, save, settled
from worker.adapters.postgres.journal import PostgresCallJournal
from worker.adapters.postgres.store import PostgresStore
from worker.core.cost import stored_usd
from worker.core.llm import CompletionUsage
from worker.llm_ports import CallIntent, CallOutcome
from worker.settings import Settings

pytestmark = pytest.mark.postgres


FAULTY = [
    ("INSERT INTO llm_calls SELECT * FROM twin", "recorded more than once"),
    ("DELETE FROM llm_call_claims", "an intent that nobody claims"),
    (
        "UPDATE llm_calls SET outcome = 'unknown', finished_at = now() WHERE outcome = 'intent'",
        "a claim without an intent",
    ),
    ("UPDATE llm_calls SET response = NULL WHERE outcome = 'complete'", "complete without a response"),
    ("UPDATE llm_calls SET cost_usd = cost_usd + 0.0000000001", "a cost that is not tokens times prices"),
    ("UPDATE llm_calls SET reserved_cost_usd = cost_usd - 0.0000000001", "a cost above what was reserved"),
    ("UPDATE attributions SET cost_usd = cost_usd - 0.0000000001", "an attribution whose cost is not its calls'"),
    ("UPDATE attributions SET input_tokens = input_tokens + 1", "an attribution whose cost is not its calls'"),
]


@pytest.mark.parametrize(("deed", "fault"), FAULTY)
async def test_what_must_never_be_is_found(
    store: PostgresStore, journal: PostgresCallJournal, sql: asyncpg.Connection, deed: str, fault: str
) -> None:
    done, open_ = calls.intent("done"), calls.intent("open", answer_id="a-2")
    await open_all(journal, [done, open_])
    await journal.close(done.call_id, calls.complete())
    await save(store, settled("a-1", await journal.usage_of(done.answer_key)))
    assert await sql.fetch(FAULTS) == []
    await sql.execute("CREATE TEMP TABLE twin AS SELECT * FROM llm_calls WHERE outcome = 'complete'")
    await sql.execute("UPDATE twin SET started_at = started_at - interval '1 microsecond'")
    await sql.execute(deed)
    assert fault in {row[0] for row in await sql.fetch(FAULTS)}


async def test_a_call_that_another_worker_ended_just_before_the_settlement_is_no_fault(
    store: PostgresStore, journal: PostgresCallJournal, sql: asyncpg.Connection
) -> None:
    """One that was frozen, or had other content under the same id: journaled, and not of this attribution's cost."""
    counted, late = calls.intent("counted"), calls.intent("late")
    await open_all(journal, [counted])
    await journal.close(counted.call_id, calls.complete())
    usage = await journal.usage_of(counted.answer_key)
    await open_all(journal, [late])
    await journal.close(late.call_id, calls.complete())
    await save(store, settled("a-1", usage))
    assert await sql.fetch(FAULTS) == []
    await sql.execute("UPDATE attributions SET llm_call_count = 2")
    assert [row[0] for row in await sql.fetch(FAULTS)] == ["an attribution whose cost is not its calls'"]


@dataclass(slots=True)
class Bill:
    """What the provider did and charged for, and which responses it delivered."""

    charged: dict[UUID, Decimal] = field(default_factory=dict)
    delivered: set[UUID] = field(default_factory=set)


class Fate:
    """What happens to one call, by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def usage(self) -> CompletionUsage:
        tokens = [self.chance.randint(0, 5_000) for _ in range(5)]
        return CompletionUsage(tokens[0], tokens[1], tokens[2], tokens[3], tokens[4])

    def of_call(self) -> str:
        fates = ("answered", "answered", "answered", "refused", "reset", "crash_before", "crash_after", "late", "twice")
        return self.chance.choice(fates)


async def one_call(journal: PostgresCallJournal, intent: CallIntent, fate: Fate, bill: Bill) -> None:
    if await journal.open(intent) is not None:
        return
    kind, usage = fate.of_call(), fate.usage()
    if kind == "crash_before":
        return
    if kind == "refused":
        await journal.close(intent.call_id, calls.failed())
        return
    result = calls.complete(usage=usage)
    assert result.cost_usd is not None
    bill.charged[intent.call_id] = stored_usd(result.cost_usd)
    if kind == "crash_after":
        return
    if kind == "reset":
        await journal.close(intent.call_id, calls.unknown())
        return
    bill.delivered.add(intent.call_id)
    if kind == "late":
        await journal.sweep()
    await journal.close(intent.call_id, result)
    if kind == "twice":
        await journal.close(intent.call_id, result)


async def test_every_billed_call_has_one_row_known_costs_are_the_bill_and_unknown_are_those_never_answered(
    settings: Settings, sql: asyncpg.Connection
) -> None:
    bill = Bill()
    async with AsyncExitStack() as stack:
        journals = [await stack.enter_async_context(open_journal(settings.postgres)) for _ in range(3)]
        for round_ in range(6):
            # Whatever was abandoned in the round before is past its life now, and is asked again.
            await sql.execute(EXPIRE)
            async with asyncio.TaskGroup() as tasks:
                for seed, journal in enumerate(journals):
                    for number in range(30):
                        intent = calls.intent(f"request {number}", answer_id=f"a-{number}", lives_s=1_000)
                        tasks.create_task(one_call(journal, intent, Fate(1_000 * round_ + 100 * seed + number), bill))
        await sql.execute(EXPIRE)
        await journals[0].sweep()
    rows = {
        UUID(str(row["call_id"])): row for row in await sql.fetch("SELECT call_id, outcome, cost_usd FROM llm_calls")
    }
    assert len(rows) == await sql.fetchval("SELECT count(*) FROM llm_calls")
    assert bill.charged.keys() <= rows.keys()
    known = {call_id: row["cost_usd"] for call_id, row in rows.items() if row["outcome"] == "complete"}
    assert known == {call_id: bill.charged[call_id] for call_id in bill.delivered}
    assert {call_id for call_id in bill.charged if rows[call_id]["outcome"] == "unknown"} == (
        bill.charged.keys() - bill.delivered
    )
    assert {row["outcome"] for row in rows.values()} == {
        CallOutcome.COMPLETE.value,
        CallOutcome.FAILED.value,
        CallOutcome.UNKNOWN.value,
    }
    assert len(bill.charged) > 60
    assert [row[0] for row in await sql.fetch(FAULTS) if row[0] != "a cost above what was reserved"] == []
