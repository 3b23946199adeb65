"""The call journal on PostgreSQL: durable, grouped, conserved, whatever happens around a commit."""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from decimal import Decimal
from typing import Any

import asyncpg
import pytest
from pydantic import SecretStr
from sqlalchemy import event

from tests.support import calls
from tests.support.cutting_proxy import CuttingProxy
from tests.support.journals import EXPIRE, FAULTS, close_all, intents, open_all, open_journal
from worker.adapters.postgres.database import Database
from worker.adapters.postgres.journal import RESPONSE_BYTES_PER_STATEMENT, PostgresCallJournal, open_call_journal
from worker.core.llm import CompletionUsage
from worker.errors import RetryableError
from worker.settings import PostgresSettings, Settings, TextStorage

pytestmark = pytest.mark.postgres


async def test_calls_made_together_share_transactions(journal: PostgresCallJournal, sql: asyncpg.Connection) -> None:
    given = intents(60)
    assert await open_all(journal, given) == [None] * 60
    assert await sql.fetchval("SELECT count(DISTINCT xmin::text) FROM llm_calls") < 5
    assert await close_all(journal, [(intent.call_id, calls.complete()) for intent in given]) == [None] * 60
    assert await sql.fetchval("SELECT count(DISTINCT xmin::text) FROM llm_calls") < 5
    assert await sql.fetchval("SELECT count(*) FROM llm_call_claims") == 0
    assert await sql.fetch(FAULTS) == []


async def test_a_row_says_all_that_is_needed_to_check_the_bill(
    journal: PostgresCallJournal, sql: asyncpg.Connection
) -> None:
    intent = calls.intent()
    await journal.open(intent)
    await journal.close(intent.call_id, calls.complete('{"id": "req-1"}'))
    row = await sql.fetchrow("SELECT * FROM llm_calls")
    assert row is not None
    expected = {
        "call_id": intent.call_id,
        "call_key": intent.call_key,
        "tenant": "default",
        "answer_id": "a-1",
        "stage": "score",
        "provider": "openai",
        "model": "gpt-5-mini",
        "client_request_id": intent.client_request_id,
        "outcome": "complete",
        "response": b'{"id": "req-1"}',
        "response_hash": None,
        "input_tokens": 1_001,
        "cache_read_tokens": 307,
        "cache_write_tokens": 11,
        "output_tokens": 203,
        "reasoning_tokens": 5,
        "usage_source": "provider",
        "input_price_usd": Decimal("0.00000025"),
        "cache_read_price_usd": Decimal("0.000000025"),
        "cache_write_price_usd": Decimal("0.0000003125"),
        "output_price_usd": Decimal("0.000002"),
        "price_source": "test",
        "price_version": "1",
        "reserved_cost_usd": Decimal("0.01"),
        "cost_usd": calls.COST,
        "latency_ms": 1_234,
        "http_status": 200,
        "provider_request_id": "req-1",
        "detail": None,
    }
    assert {name: row[name] for name in expected} == expected
    assert set(row.keys()) - expected.keys() == {"started_at", "deadline_at", "finished_at"}
    assert row["started_at"] < row["finished_at"] < row["deadline_at"]
    assert (row["deadline_at"] - row["started_at"]).total_seconds() == 100


async def test_an_end_that_cannot_be_stored_fails_alone(journal: PostgresCallJournal, sql: asyncpg.Connection) -> None:
    """litellm PR#33873: one bad row destroyed its whole batch."""
    given = intents(5)
    await open_all(journal, given)
    ends = [(intent.call_id, calls.complete()) for intent in given]
    ends[2] = (given[2].call_id, calls.complete(usage=CompletionUsage(2**70, 1), prices=None))
    results = await close_all(journal, ends)
    assert [type(result) for result in results] == [type(None)] * 2 + [RetryableError] + [type(None)] * 2
    assert await sql.fetchval("SELECT count(*) FROM llm_calls WHERE outcome = 'complete'") == 4


async def test_nul_and_lone_surrogates_around_a_response_are_stored_replaced(
    journal: PostgresCallJournal, sql: asyncpg.Connection
) -> None:
    intent = calls.intent()
    await journal.open(intent)
    strange = replace(calls.complete(), detail="a\x00b", provider_request_id="r\ud800")
    await journal.close(intent.call_id, strange)
    row = await sql.fetchrow("SELECT detail, provider_request_id FROM llm_calls")
    assert row is not None
    assert tuple(row) == ("a�b", "r�")


async def test_large_responses_are_written_in_statements_of_bounded_size(
    database: Database, journal: PostgresCallJournal, sql: asyncpg.Connection
) -> None:
    sizes: list[int] = []

    def look(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "given_response" in statement:
            arrays = [given for given in parameters if isinstance(given, (list, tuple))]
            sizes.append(sum(len(item) for array in arrays for item in array if isinstance(item, bytes)))

    event.listen(database.engine.sync_engine, "before_cursor_execute", look)
    given = intents(12)
    await open_all(journal, given)
    raw = "x" * (2 * 2**20)
    assert await close_all(journal, [(intent.call_id, calls.complete(raw)) for intent in given]) == [None] * 12
    assert sum(sizes) == 12 * len(raw)
    assert max(sizes) <= RESPONSE_BYTES_PER_STATEMENT
    assert await sql.fetchval("SELECT sum(octet_length(response)) FROM llm_calls") == 12 * len(raw)


@pytest.mark.parametrize("answered", [True, False], ids=["after the commit", "before the commit"])
async def test_an_intent_of_unknown_outcome_is_on_record_exactly_once(
    settings: Settings, sql: asyncpg.Connection, postgres_dsn: str, answered: bool
) -> None:
    async with (
        CuttingProxy(postgres_dsn, cut_at=b"COMMIT", forward=answered) as proxy,
        open_journal(PostgresSettings(dsn=SecretStr(proxy.dsn))) as journal,
    ):
        assert await open_all(journal, intents(5)) == [None] * 5
        assert proxy.cuts == 1
    assert await sql.fetchval("SELECT count(*) FROM llm_calls") == 5
    assert await sql.fetch(FAULTS) == []


@pytest.mark.parametrize("answered", [True, False], ids=["after the commit", "before the commit"])
async def test_an_end_of_unknown_outcome_is_counted_exactly_once(
    settings: Settings, journal: PostgresCallJournal, sql: asyncpg.Connection, postgres_dsn: str, answered: bool
) -> None:
    """litellm#29292 billed twice; asyncpg#309: the connection broke while COMMIT was under way."""
    given = intents(5)
    await open_all(journal, given)
    ends = [(intent.call_id, calls.complete()) for intent in given]
    async with (
        CuttingProxy(postgres_dsn, cut_at=b"COMMIT", forward=answered) as proxy,
        open_journal(PostgresSettings(dsn=SecretStr(proxy.dsn))) as cut,
    ):
        assert await close_all(cut, ends) == [None] * 5
        assert proxy.cuts == 1
    assert await sql.fetchval("SELECT sum(cost_usd) FROM llm_calls") == 5 * calls.COST
    assert await sql.fetch(FAULTS) == []


async def test_journals_that_open_the_same_requests_in_different_orders_never_deadlock(
    settings: Settings, sql: asyncpg.Connection
) -> None:
    """basic-memory#1208: ON CONFLICT deadlocks too when rows come in arrival order."""
    chooser = random.Random(5)
    async with AsyncExitStack() as stack:
        journals = [await stack.enter_async_context(open_journal(settings.postgres)) for _ in range(4)]
        for _ in range(5):
            await sql.execute(EXPIRE)
            async with asyncio.TaskGroup() as tasks:
                runs = [
                    tasks.create_task(open_all(journal, chooser.sample(given := intents(40), len(given))))
                    for journal in journals
                ]
            waits_s = [wait_s for run in runs for wait_s in run.result()]
            assert waits_s.count(None) == 40, "each request is made by exactly one of four"
    outcomes = Counter(
        {row[0]: row[1] for row in await sql.fetch("SELECT outcome, count(*) FROM llm_calls GROUP BY 1")}
    )
    assert outcomes == {"unknown": 160, "intent": 40}
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert await sql.fetchval(deadlocks) == 0
    assert await sql.fetch(FAULTS) == []


async def test_a_call_is_closed_without_a_look_into_partitions_long_past(
    database: Database, sql: asyncpg.Connection
) -> None:
    """The plan, as the database makes it: old partitions are cold, and every call would read from each."""
    await sql.execute(
        "CREATE TABLE llm_calls_2020_01 PARTITION OF llm_calls FOR VALUES FROM ('2020-01-01') TO ('2020-02-01')"
    )
    executed: list[tuple[str, Any]] = []

    def look(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        executed.append((statement, parameters))

    async with open_call_journal(database, TextStorage.FULL) as journal:
        intent = calls.intent()
        await journal.open(intent)
        event.listen(database.engine.sync_engine, "before_cursor_execute", look)
        await journal.close(intent.call_id, calls.complete())
    ((close, parameters),) = [given for given in executed if given[0].startswith("UPDATE llm_calls")]
    plan = "\n".join(row[0] for row in await sql.fetch(f"EXPLAIN {close}", *parameters))
    assert "llm_calls_2020_01" not in plan
    assert "llm_calls_default" not in plan
    assert "Subplans Removed" not in plan, "they are not even planned for"


async def test_looks_into_every_partition_are_planned_once_and_by_index_even_while_the_tables_are_empty(
    database: Database, sql: asyncpg.Connection
) -> None:
    """A plan for twelve months takes ten times what the look takes; and one made too early would scan for ever."""
    executed: list[tuple[str, Any]] = []

    def look(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        executed.append((statement, parameters))

    async with open_call_journal(database, TextStorage.FULL) as journal:
        event.listen(database.engine.sync_engine, "before_cursor_execute", look)
        await journal.open(replace(calls.intent(), responses_known=0))
        await journal.responses(calls.call_key())
        await journal.usage_of(calls.answer_key())
    once = [number for number, (_, parameters) in enumerate(executed) if "force_generic_plan" in parameters]
    assert len(once) == 3
    for number in once:
        async with sql.transaction():
            await sql.execute("SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = force_generic_plan")
            prepared = await sql.prepare(f"EXPLAIN {executed[number + 1][0]}")
            plan = "\n".join(row[0] for row in await prepared.fetch(*executed[number + 1][1]))
        assert "Index Cond" in plan
        assert "Seq Scan" not in plan


async def test_a_response_older_than_is_looked_for_is_bought_anew_and_stays_on_record(
    settings: Settings, sql: asyncpg.Connection
) -> None:
    """What a look costs must not grow with the months kept."""
    postgres = settings.postgres.model_copy(update={"responses_age_days_max": 10})
    async with open_journal(postgres) as journal:
        old, young = calls.intent("request"), calls.intent("request")
        await open_all(journal, [old])
        await journal.close(old.call_id, calls.complete())
        await sql.execute("UPDATE llm_calls SET started_at = now() - interval '9 days'")
        assert [call.call_id for call in await journal.responses(old.call_key)] == [old.call_id]
        await sql.execute("UPDATE llm_calls SET started_at = now() - interval '11 days'")
        assert await journal.responses(old.call_key) == []
        assert await open_all(journal, [replace(young, responses_known=0)]) == [None]
        await journal.close(young.call_id, calls.complete())
        assert [call.call_id for call in await journal.responses(old.call_key)] == [young.call_id]
        assert (await journal.usage_of(old.answer_key)).calls == 2, "what it cost is counted, however old"
