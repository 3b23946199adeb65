"""Rows find their month, come late or early, and leave when they are old."""

import asyncio

import asyncpg
import pytest

from tests.support import samples
from tests.support.attributions import attribution_of, message_of
from worker.adapters.postgres.partitions import Month, drop_expired_partitions
from worker.adapters.postgres.store import PostgresStore

pytestmark = pytest.mark.postgres

LANDED_IN = "SELECT tableoid::regclass::text AS partition, count(*) AS rows FROM attributions GROUP BY 1 ORDER BY 1"


async def save(store: PostgresStore, *answer_ids: str) -> None:
    for answer_id in answer_ids:
        attribution = attribution_of(samples.answer(answer_id))
        await store.save(attribution, message_of(attribution))


async def landed(sql: asyncpg.Connection) -> dict[str, int]:
    return {row["partition"]: row["rows"] for row in await sql.fetch(LANDED_IN)}


async def this_month(sql: asyncpg.Connection) -> str:
    month: str = await sql.fetchval("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM')")
    return month


async def test_rows_land_in_the_partition_of_the_month_of_settlement_whatever_the_producer_says(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    await save(store, "a-1")
    assert await landed(sql) == {f"attributions_{await this_month(sql)}": 1}


async def test_without_a_partition_rows_are_kept_in_the_default_one_and_move_when_it_is_made(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    """awx#10744: no partition of relation found."""
    month = await this_month(sql)
    await sql.execute(f"DROP TABLE attributions_{month}, source_attributions_{month}")
    await save(store, "a-1", "a-2")
    assert await landed(sql) == {"attributions_default": 2}
    made = await store.ensure_partitions()
    assert sorted(made) == [f"attributions_{month}", f"source_attributions_{month}"]
    assert await landed(sql) == {f"attributions_{month}": 2}
    await save(store, "a-3")
    assert await landed(sql) == {f"attributions_{month}": 3}


async def test_a_partition_made_late_explains_and_protects_itself_like_the_others(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    month = await this_month(sql)
    described = (
        "SELECT conname::text, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conrelid = $1::regclass AND contype = 'c' ORDER BY 1"
    )
    before = await sql.fetch(described, f"attributions_{month}")
    await sql.execute(f"DROP TABLE attributions_{month}")
    await store.ensure_partitions()
    assert before
    assert await sql.fetch(described, f"attributions_{month}") == before


async def test_many_workers_that_start_at_once_make_each_partition_once(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    month = await this_month(sql)
    await sql.execute(f"DROP TABLE attributions_{month}, source_attributions_{month}, llm_calls_{month}")
    async with asyncio.TaskGroup() as tasks:
        runs = [tasks.create_task(store.ensure_partitions()) for _ in range(4)]
    made = [name for run in runs for name in run.result()]
    assert sorted(made) == [f"{table}_{month}" for table in ("attributions", "llm_calls", "source_attributions")]
    assert await store.ensure_partitions() == []


async def test_partitions_past_the_retention_go_and_their_answers_are_still_not_settled_again(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    await save(store, "a-1", "a-2")
    await sql.execute(
        "CREATE TABLE attributions_2020_01 PARTITION OF attributions FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z')"
    )
    await sql.execute("UPDATE attributions SET settled_at = '2020-01-15Z' WHERE answer_id = 'a-1'")
    dropped = await drop_expired_partitions(store.database.engine, retention_months=24)
    assert dropped == ["attributions_2020_01"]
    assert await landed(sql) == {f"attributions_{await this_month(sql)}": 1}
    assert await store.find(samples.answer("a-1").key, samples.record()) is not None


async def test_the_retention_keeps_whole_months_and_the_default_partition(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    await save(store, "a-1")
    assert await drop_expired_partitions(store.database.engine, retention_months=1) == []


@pytest.mark.parametrize(
    ("months", "expected"), [(0, "2026_12"), (1, "2027_01"), (13, "2028_01"), (-12, "2025_12"), (-11, "2026_01")]
)
def test_months_are_counted_across_years(months: int, expected: str) -> None:
    assert Month(2026, 12).plus(months).suffix == expected
