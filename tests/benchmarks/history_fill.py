"""Months of history in a database: copies of a few real answers, with new random keys, made by the server itself."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import asyncpg
from sqlalchemy import Table

from worker.adapters.postgres.partitions import Month
from worker.adapters.postgres.tables import (
    PARTITIONED_BY,
    answers,
    attributions,
    llm_calls,
    reusable_judgements,
    source_attributions,
)

KEPT: tuple[Table, ...] = (answers, attributions, source_attributions, llm_calls)
HISTORY = (*KEPT, reusable_judgements)
"""What an answer leaves behind: for as long as is wanted, and for some days."""

ANSWERS_PER_DEAD_LETTER = 200
REUSABLE_DAYS = 30

RANDOM_HASH = "sha256(gen_random_uuid()::text::bytea)"
NEW: Mapping[str, str] = {
    "answer_id": "made.answer_id",
    "settled_at": "made.at",
    "content_hash": RANDOM_HASH,
    "reuse_hash": RANDOM_HASH,
    "call_id": "gen_random_uuid()",
    "call_key": RANDOM_HASH,
    "started_at": "made.at - interval '6 seconds'",
    "deadline_at": "made.at + interval '1 minute'",
    "finished_at": "made.at - interval '3 seconds'",
}
"""What a copy does not have from its original."""

# In the order of time, as real rows come; their keys are in no order at all.
MADE = """
    CREATE TEMPORARY TABLE made ON COMMIT DROP AS
    SELECT gen_random_uuid()::text AS answer_id, o.answer_id AS original_id,
        CAST($1 AS timestamptz) + (CAST($2 AS timestamptz) - CAST($1 AS timestamptz)) * (i::float8 / $3) AS at
    FROM generate_series(1, $3) i
    JOIN (SELECT answer_id, row_number() OVER (ORDER BY answer_id) - 1 AS number, count(*) OVER () AS count
        FROM answers WHERE tenant = $4 AND answer_id LIKE 'original-%') o ON o.number = i % o.count
    ORDER BY i
"""
LETTERS = f"""
    INSERT INTO dead_letters (topic, partition, record_offset, value_hash, record_timestamp_ms, value,
        value_size_bytes, headers, reason, detail, attempts, tenant, answer_id, code_version, created_at)
    SELECT $1, i % 12, (extract(epoch FROM at) * 1000)::bigint, {RANDOM_HASH},
        (extract(epoch FROM at) * 1000)::bigint, convert_to(repeat(md5(answer_id), 300), 'UTF8'), 9600, '',
        'judge_incomplete', 'a copy for a benchmark', 3, 'bench', answer_id || '-dead', 'bench', at
    FROM (SELECT *, row_number() OVER () AS i FROM made) numbered WHERE i % {ANSWERS_PER_DEAD_LETTER} = 0
"""  # noqa: S608  # constants of ours


@dataclass(frozen=True)
class Originals:
    """Answers that were stored by the worker's own code, to be copied."""

    tenant: str
    topic: str


async def fill(dsn: str, originals: Originals, *, rows: int, months: int) -> Mapping[str, int]:
    """About so many rows over so many months up to now; returns how many each table has. No worker may be running."""
    connection = await asyncpg.connect(dsn)
    try:
        async with _unhurried(connection):
            per_month = round(rows / await _rows_per_answer(connection) / months)
            for month in _months(months):
                await _make_partitions(connection, month)
                await _fill_month(connection, originals, month, per_month)
            await _forget(connection)
            await connection.execute("VACUUM (FREEZE, ANALYZE)")
        await connection.execute("CHECKPOINT")
        return await _counts(connection)
    finally:
        await connection.close()


async def _rows_per_answer(connection: asyncpg.Connection) -> float:
    counts = await _counts(connection)
    return sum(counts[table.name] for table in KEPT) / counts[answers.name]


async def _counts(connection: asyncpg.Connection) -> dict[str, int]:
    return {table.name: await connection.fetchval(f"SELECT count(*) FROM {table.name}") for table in HISTORY}  # noqa: S608  # ours


@asynccontextmanager
async def _unhurried(connection: asyncpg.Connection) -> AsyncIterator[None]:
    """Copying is no part of what is measured: without full pages in the log it takes half the time."""
    await _set(connection, "full_page_writes", "off")
    try:
        yield
    finally:
        await _set(connection, "full_page_writes", "on")


async def _set(connection: asyncpg.Connection, name: str, value: str) -> None:
    await connection.execute(f"ALTER SYSTEM SET {name} = {value}")
    await connection.execute("SELECT pg_reload_conf()")


def _months(count: int) -> list[Month]:
    now = datetime.now(UTC)
    return [Month(now.year, now.month).plus(-back) for back in range(count - 1, -1, -1)]


async def _make_partitions(connection: asyncpg.Connection, month: Month) -> None:
    first, end = month.start.isoformat(), month.plus(1).start.isoformat()
    for table in PARTITIONED_BY:
        await connection.execute(
            f"CREATE TABLE IF NOT EXISTS {table.name}_{month.suffix} PARTITION OF {table.name} "
            f"FOR VALUES FROM ('{first}') TO ('{end}')"
        )


async def _fill_month(connection: asyncpg.Connection, originals: Originals, month: Month, count: int) -> None:
    # Its calls begin a moment before an answer is settled, in the same month; and nothing comes from the future.
    first = month.start + timedelta(minutes=1)
    end = min(month.plus(1).start, datetime.now(UTC)) - timedelta(seconds=1)
    async with connection.transaction():
        await connection.execute("SET LOCAL synchronous_commit = off")
        await connection.execute(MADE, first, end, count, originals.tenant)
        await connection.execute("ANALYZE made")
        for table in HISTORY:
            await connection.execute(_copies(table, originals.tenant))
        await connection.execute(LETTERS, originals.topic)


async def _forget(connection: asyncpg.Connection) -> None:
    """The originals: they came before the months that precede them, which a month's rows never do."""
    for table in HISTORY:
        await connection.execute(f"DELETE FROM {table.name} WHERE answer_id LIKE 'original-%'")  # noqa: S608  # ours


def _copies(table: Table, tenant: str) -> str:
    names = [column.name for column in table.columns]
    values = ", ".join(NEW.get(name, f"original.{name}") for name in names)
    recent = f" WHERE made.at > now() - interval '{REUSABLE_DAYS} days'" if table is reusable_judgements else ""
    originals = f"SELECT * FROM {table.name} WHERE tenant = '{tenant}' AND answer_id LIKE 'original-%' OFFSET 0"  # noqa: S608  # ours
    return (
        f"INSERT INTO {table.name} ({', '.join(names)}) SELECT {values} FROM made "  # noqa: S608  # names of ours
        f"JOIN ({originals}) original ON original.answer_id = made.original_id{recent}"
    )
