"""What is looked up in the tables, by workers and by people: how long each look takes and how much it reads."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from hashlib import sha256
from statistics import median
from uuid import uuid4

import asyncpg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.benchmarks.history_saves import TENANT, Computed, Saving, open_saving
from worker.adapters.postgres.dead_letter_desk import DeadLetterDesk, DeadLetterFilter
from worker.adapters.postgres.engine import APPLICATION_NAME
from worker.adapters.postgres.watch import TablesWatch
from worker.core.model import AnswerId, AnswerKey, TenantId
from worker.core.records import Record
from worker.settings import Settings

REPEATS = 10

READ = """
    SELECT coalesce(sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)
        + coalesce(toast_blks_read + toast_blks_hit, 0) + coalesce(tidx_blks_read + tidx_blks_hit, 0)), 0)::bigint
    FROM pg_statio_user_tables
"""
OURS_LEFT = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1"


@dataclass(frozen=True, slots=True)
class Seen:
    """One look: blocks of 8 KiB of tables and indexes, cached or not, are what it reads whatever the machine does."""

    blocks: float
    median_s: float


@dataclass(frozen=True, slots=True)
class Known:
    """Something that is there to be looked for."""

    key: AnswerKey
    day: date


Look = Callable[[Saving, Known, Settings], Awaitable[object]]


async def _find(saving: Saving, known: Known, _: Settings) -> None:
    record = Record("answers", 0, 1, 1_780_000_000_001, None, None)
    assert await saving.store.find(known.key, record) is not None


async def _find_unsettled(saving: Saving, known: Known, _: Settings) -> None:
    record = Record("answers", 0, 1, 1_780_000_000_001, None, None)
    assert await saving.store.find(AnswerKey(known.key.tenant, AnswerId(str(uuid4()))), record) is None


async def _limits(saving: Saving, _known: Known, _: Settings) -> None:
    await saving.store.check_dead_letter_limits()


async def _watch(saving: Saving, _known: Known, settings: Settings) -> None:
    await TablesWatch(saving.store.database, settings).look()


async def _claim(saving: Saving, _known: Known, _: Settings) -> None:
    await saving.publish()


async def _responses(saving: Saving, _known: Known, _: Settings) -> None:
    assert not await saving.accounts.journal.responses(sha256(uuid4().bytes).digest())


async def _usage(saving: Saving, known: Known, _: Settings) -> None:
    assert (await saving.accounts.journal.usage_of(known.key)).calls


async def _judgement(saving: Saving, known: Known, _: Settings) -> None:
    assert saving.accounts.judgements is not None
    await saving.accounts.judgements.find_judgement(known.key.tenant, sha256(uuid4().bytes).digest())


async def _upkeep(saving: Saving, _known: Known, _: Settings) -> None:
    await saving.store.ensure_partitions()
    await saving.accounts.journal.sweep()
    await saving.accounts.budgets.sweep()


async def _letters(saving: Saving, _known: Known, _: Settings) -> None:
    await DeadLetterDesk(saving.store.database).find(DeadLetterFilter(), rows_max=50)


def _view(query: str) -> Look:
    statement = text(query)

    async def look(saving: Saving, known: Known, _: Settings) -> None:
        async def work(connection: AsyncConnection) -> None:
            given = {"tenant": known.key.tenant, "answer_id": known.key.answer_id, "day": known.day}
            wanted = {name: given[name] for name in statement.compile().params}
            assert (await connection.execute(statement, wanted)).all(), query

        await saving.store.database.run(work)

    return look


LOOKS: Mapping[str, Look] = {
    "is this answer settled?": _find,
    "is this new answer settled?": _find_unsettled,
    "dead-letter limits": _limits,
    "what an operator watches": _watch,
    "claim from the outbox": _claim,
    "responses to a call": _responses,
    "usage of an answer": _usage,
    "a judgement to copy": _judgement,
    "upkeep, daily": _upkeep,
    "the newest 50 dead letters": _letters,
    "answer_explained, one answer": _view(
        "SELECT * FROM answer_explained WHERE tenant = :tenant AND answer_id = :answer_id"
    ),
    "answer_cost, one answer": _view("SELECT * FROM answer_cost WHERE tenant = :tenant AND answer_id = :answer_id"),
}
"""Their cost must not grow with history."""

DAILY: Mapping[str, Look] = {
    "owner_credit_daily, one day": _view("SELECT * FROM owner_credit_daily WHERE day = :day"),
    "llm_spend_daily, one day": _view("SELECT * FROM llm_spend_daily WHERE day = :day"),
}
"""Their cost is that of the day's rows."""


async def known_in(dsn: str) -> Known:
    """An answer from the middle of the history, and its day."""
    connection = await asyncpg.connect(dsn)
    try:
        row = await connection.fetchrow(
            "SELECT answer_id, settled_at FROM answers WHERE tenant = $1 AND settled_at >= (SELECT min(settled_at) "
            "+ (max(settled_at) - min(settled_at)) / 2 FROM answers) ORDER BY settled_at LIMIT 1",
            TENANT,
        )
        return Known(AnswerKey(TenantId(TENANT), AnswerId(row["answer_id"])), row["settled_at"].date())
    finally:
        await connection.close()


async def day_share(dsn: str, day: date) -> float:
    """What part of all answers was settled on that day."""
    connection = await asyncpg.connect(dsn)
    try:
        share = await connection.fetchval(
            "SELECT count(*) FILTER (WHERE settled_at >= $1 AND settled_at < $2)::float8 / count(*) FROM answers",
            *(datetime.combine(moment, time_of_day(), UTC) for moment in (day, day + timedelta(days=1))),
        )
        return float(share)
    finally:
        await connection.close()


async def look_at(settings: Settings, computed: Computed, known: Known, look: Look) -> Seen:
    """Several times, on connections of its own: their end is when the server counts what they read."""
    dsn = settings.postgres.dsn.get_secret_value()
    connection = await asyncpg.connect(dsn)
    try:
        before = await connection.fetchval(READ)
        async with open_saving(settings, computed, remembers=True) as saving:
            took_s = [await _timed(look(saving, known, settings)) for _ in range(REPEATS)]
        while await connection.fetchval(OURS_LEFT, APPLICATION_NAME):  # noqa: ASYNC110  # the event is the server's
            await asyncio.sleep(0.01)
        return Seen((await connection.fetchval(READ) - before) / REPEATS, median(took_s))
    finally:
        await connection.close()


async def _timed(looking: Awaitable[object]) -> float:
    began_s = time.perf_counter()
    await looking
    return time.perf_counter() - began_s
