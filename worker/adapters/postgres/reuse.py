"""`JudgementCache` on PostgreSQL: the judgement of an answer, copied from the evidence of one with the same content."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Integer, and_, bindparam, cast, delete, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres.bulk import arrays_of, insert_unnested, unnested
from worker.adapters.postgres.coalescer import coalescing
from worker.adapters.postgres.database import Database
from worker.adapters.postgres.evidence import decode_evidence
from worker.adapters.postgres.tables import attributions, reusable_judgements
from worker.core.model import AnswerId, Attribution, Judgement, ReusedFrom, TenantId
from worker.core.reuse import is_judged, reuse_hash
from worker.settings import ReuseSettings, TextStorage

Content = tuple[TenantId, bytes]
"""A tenant and the `reuse_hash` of one of its answers."""

_entries, _stored = reusable_judgements.c, attributions.c
CONTENT_COLUMNS = [_entries.tenant, _entries.reuse_hash]
ENTRY_COLUMNS = [*CONTENT_COLUMNS, _entries.answer_id, _entries.revision]

_insert = insert_unnested(ENTRY_COLUMNS)
# The newest wins, so that an entry whose attribution is gone is replaced by the judgement that its loss made necessary.
REMEMBER = _insert.on_conflict_do_update(
    index_elements=CONTENT_COLUMNS,
    set_={name: _insert.excluded[name] for name in ("answer_id", "revision", "settled_at")},
)

_oldest = func.now() - cast(bindparam("age_days_max"), Integer) * literal_column("interval '1 day'")
_wanted = unnested(CONTENT_COLUMNS)
FIND = (
    select(_entries.tenant, _entries.reuse_hash, _stored.answer_id, _stored.revision, _stored.evidence)
    .join(_wanted, and_(*(item == _wanted.c[item.name] for item in CONTENT_COLUMNS)))
    .join(
        attributions,
        and_(*(_stored[name] == _entries[name] for name in ("tenant", "answer_id", "revision", "settled_at"))),
    )
    .where(_entries.settled_at >= _oldest)
)
FORGET = delete(reusable_judgements).where(_entries.settled_at < _oldest)


class PostgresJudgementCache:
    """See `JudgementCache`; made by `open_judgement_cache`."""

    def __init__(
        self, database: Database, settings: ReuseSettings, find: Callable[[Content], Awaitable[Judgement | None]]
    ) -> None:
        self._database = database
        self._settings = settings
        self._find = find

    async def find_judgement(self, tenant: TenantId, reuse_hash: bytes) -> Judgement | None:
        return await self._find((tenant, reuse_hash))

    async def sweep(self) -> int:
        """For the start and once a day: entries past their age are dropped; returns how many were."""

        async def work(connection: AsyncConnection) -> int:
            return (await connection.execute(FORGET, {"age_days_max": self._settings.age_days_max})).rowcount

        return await self._database.run(work)


@asynccontextmanager
async def open_judgement_cache(database: Database, settings: ReuseSettings) -> AsyncIterator[PostgresJudgementCache]:
    """A cache that works as long as the context. Enter and leave it in one task, as any TaskGroup."""

    async def flush(contents: Sequence[Content]) -> Sequence[Judgement | None]:
        wanted = arrays_of(CONTENT_COLUMNS, sorted(set(contents)))

        async def work(connection: AsyncConnection) -> dict[Content, Judgement | None]:
            found = await connection.execute(FIND, {**wanted, "age_days_max": settings.age_days_max})
            return {(row.tenant, row.reuse_hash): _judgement(row) for row in found}

        found = await database.run(work)
        return [found.get(content) for content in contents]

    limits = database.settings
    async with coalescing(flush, batch_max=limits.save_batch_max, timeout_s=limits.save_timeout_s, flushers=1) as find:
        yield PostgresJudgementCache(database, settings, find)


async def remember_judgements(connection: AsyncConnection, settled: Sequence[Attribution]) -> None:
    """Enter what was judged, not copied, among these; to be called in the transaction that stores them."""
    entries = {
        (item.answer.key.tenant, reuse_hash(item.answer, item.method.method_hash)): item
        for item in settled
        if item.judgement.reused_from is None and is_judged(item.answer)
    }
    if entries:
        # In one order everywhere: two batches that share contents in two orders would deadlock.
        ordered = [(content, entries[content]) for content in sorted(entries)]
        rows = [(*content, item.answer.key.answer_id, item.revision) for content, item in ordered]
        await connection.execute(REMEMBER, arrays_of(ENTRY_COLUMNS, rows))


def _judgement(row: Any) -> Judgement | None:
    """None where the words are not stored, or stored in a way this version does not know: such a copy would be half."""
    try:
        evidence = decode_evidence(row.evidence)
    except ValueError:
        return None
    if evidence.texts is not TextStorage.FULL:
        return None
    return Judgement(
        key_points=evidence.key_points,
        supports=evidence.supports,
        quotes=evidence.quotes,
        grounding_threshold=evidence.grounding_threshold,
        unevidenced=evidence.unevidenced,
        shuffle_seed=evidence.shuffle_seed,
        reused_from=ReusedFrom(AnswerId(row.answer_id), row.revision),
    )
