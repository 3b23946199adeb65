"""The cache of judgements beside the tables it points into."""

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import asyncpg
import pytest
from sqlalchemy import event

from tests.support import samples
from tests.support.attributions import attribution_of, message_of
from worker.adapters.postgres.reuse import open_judgement_cache
from worker.adapters.postgres.store import PostgresStore, open_store
from worker.core.model import AnswerId, Attribution, Judgement, ReusedFrom
from worker.core.reuse import reuse_hash
from worker.settings import ReuseSettings, Settings

pytestmark = pytest.mark.postgres


async def save(store: PostgresStore, attribution: Attribution) -> Attribution:
    await store.save(attribution, message_of(attribution))
    return attribution


async def find(store: PostgresStore, like: Attribution) -> Judgement | None:
    async with open_judgement_cache(store.database, ReuseSettings()) as cache:
        wanted = reuse_hash(like.answer, like.method.method_hash)
        return await cache.find_judgement(like.answer.key.tenant, wanted)


async def test_a_copy_is_stored_with_its_origin_and_without_a_cost(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    copied = replace(samples.judgement(), reused_from=ReusedFrom(AnswerId("a-1"), 3))
    await save(store, attribution_of(samples.answer("a-2"), copied))
    await save(store, attribution_of(samples.answer("a-3")))
    origins = (
        "SELECT reused_from_answer_id, reused_from_revision, cost_usd, llm_call_count "
        "FROM attributions ORDER BY answer_id"
    )
    assert [tuple(row) for row in await sql.fetch(origins)] == [("a-1", 3, 0, 0), (None, None, 0, 0)]
    of_cost = "SELECT answer_id, reused_from_answer_id FROM answer_cost ORDER BY 1"
    assert [tuple(row) for row in await sql.fetch(of_cost)] == [("a-2", "a-1"), ("a-3", None)]


async def test_an_entry_whose_attribution_is_gone_is_a_miss_and_heals(
    settings: Settings, sql: asyncpg.Connection
) -> None:
    """Old partitions are dropped; what pointed into them must not keep an answer from being judged and copied again."""
    async with open_store(settings, code_version="test", remembers_judgements=True) as store:
        await save(store, attribution_of(samples.answer("a-1")))
        await sql.execute("DELETE FROM attributions")
        again = attribution_of(samples.answer("a-2"))
        assert await find(store, again) is None
        await save(store, again)
        copy = await find(store, again)
    assert copy is not None
    assert copy.reused_from == ReusedFrom(AnswerId("a-2"), 1)


async def test_evidence_of_a_version_nobody_knows_is_a_miss(settings: Settings, sql: asyncpg.Connection) -> None:
    async with open_store(settings, code_version="test", remembers_judgements=True) as store:
        first = await save(store, attribution_of())
        await sql.execute("""UPDATE attributions SET evidence = jsonb_set(evidence, '{evidence_version}', '99')""")
        assert await find(store, first) is None


async def test_old_judgements_are_not_copied_and_their_entries_go(settings: Settings, sql: asyncpg.Connection) -> None:
    async with open_store(settings, code_version="test", remembers_judgements=True) as store:
        first = await save(store, attribution_of())
        await sql.execute("UPDATE reusable_judgements SET settled_at = settled_at - interval '31 days'")
        await sql.execute("UPDATE attributions SET settled_at = settled_at - interval '31 days'")
        assert await find(store, first) is None
        async with open_judgement_cache(store.database, ReuseSettings(age_days_max=32)) as patient:
            wanted = reuse_hash(first.answer, first.method.method_hash)
            assert await patient.find_judgement(first.answer.key.tenant, wanted) is not None
            assert await patient.sweep() == 0
        async with open_judgement_cache(store.database, ReuseSettings()) as cache:
            assert await cache.sweep() == 1


async def test_without_reuse_nothing_is_written_or_executed_for_it(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    executed: list[str] = []

    def look(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        executed.append(statement)

    event.listen(store.database.engine.sync_engine, "before_cursor_execute", look)
    await save(store, attribution_of())
    assert not [statement for statement in executed if "reusable" in statement or "llm_calls" in statement]
    assert await sql.fetchval("SELECT count(*) FROM reusable_judgements") == 0


async def test_look_ups_made_together_are_one_query(settings: Settings, store: PostgresStore) -> None:
    executed: list[str] = []

    def look(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        executed.append(statement)

    async with open_judgement_cache(store.database, settings.reuse) as cache:
        await cache.find_judgement(samples.answer().key.tenant, bytes(32))
        event.listen(store.database.engine.sync_engine, "before_cursor_execute", look)
        async with asyncio.TaskGroup() as tasks:
            for number in range(50):
                tasks.create_task(cache.find_judgement(samples.answer().key.tenant, bytes([number]) * 32))
    assert len(executed) <= 2


async def test_stores_that_judge_the_same_contents_in_different_orders_never_deadlock(
    settings: Settings, sql: asyncpg.Connection
) -> None:
    """basic-memory#1208: ON CONFLICT deadlocks too when rows come in arrival order."""
    chooser = random.Random(7)
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(open_store(settings, code_version="test", remembers_judgements=True))
            for _ in range(4)
        ]
        async with asyncio.TaskGroup() as tasks:
            for number, store in enumerate(stores):
                given = [attribution_of(samples.answer(f"{number}-{i}", text=f"Text {i}.")) for i in range(40)]
                for attribution in chooser.sample(given, len(given)):
                    tasks.create_task(save(store, attribution))
    assert await sql.fetchval("SELECT count(*) FROM reusable_judgements") == 40
    assert await sql.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
