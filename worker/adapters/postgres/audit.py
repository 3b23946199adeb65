"""Recompute what is stored: every attribution, page by page, in constant memory."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, Select, and_, func, select, true, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres.bulk import arrays_of, unnested
from worker.adapters.postgres.database import Database
from worker.adapters.postgres.recompute import StoredAttribution, StoredSource, differences_of
from worker.adapters.postgres.tables import attributions, methods, source_attributions

PAGE_ROWS = 200
Key = tuple[str, str, int, datetime]

KEY_COLUMNS = [attributions.c[name] for name in ("tenant", "answer_id", "revision", "settled_at")]
KEY = tuple_(*KEY_COLUMNS)
STORED_COLUMNS = {
    name: methods.c.document.label(name) if name == "method_document" else attributions.c[name]
    for name in StoredAttribution.__slots__
    if name != "sources"
}
ATTRIBUTIONS = select(*KEY_COLUMNS, *STORED_COLUMNS.values()).outerjoin(
    methods, methods.c.method_hash == attributions.c.method_hash
)

_wanted = unnested(KEY_COLUMNS)
_sources = source_attributions.c
SOURCES = (
    select(*(_sources[column.name] for column in KEY_COLUMNS), *(_sources[name] for name in StoredSource.__slots__))
    .join(_wanted, and_(*(_sources[column.name] == _wanted.c[column.name] for column in KEY_COLUMNS)))
    .order_by(*(_sources[column.name] for column in KEY_COLUMNS), _sources.position)
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One attribution, recomputed; `differences` is empty when every unit is equal."""

    tenant: str
    answer_id: str
    revision: int
    differences: tuple[str, ...]


class Audit:
    """Reads only; a time without zone is UTC."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def count(self, since: datetime | None = None) -> int:
        """Attributions that `verify` will go through."""

        async def work(connection: AsyncConnection) -> int:
            counted = select(func.count()).select_from(attributions).where(_settled_since(since))
            return (await connection.execute(counted)).scalar_one()

        return await self._database.run(work)

    async def verify(self, since: datetime | None = None) -> AsyncIterator[Finding]:
        """Every attribution settled at or after `since`, in order of its key."""
        page = ATTRIBUTIONS.where(_settled_since(since)).order_by(*KEY_COLUMNS).limit(PAGE_ROWS)
        after: ColumnElement[bool] = true()
        while True:
            rows, sources = await self._read(page.where(after))
            for row in rows:
                yield _finding(row, sources.get(_key_of(row), []))
            if len(rows) < PAGE_ROWS:
                return
            after = tuple_(*_key_of(rows[-1])) < KEY

    async def _read(self, page: Select[Any]) -> tuple[Sequence[RowMapping], Mapping[Key, list[StoredSource]]]:
        async def work(connection: AsyncConnection) -> tuple[Sequence[RowMapping], Mapping[Key, list[StoredSource]]]:
            rows = (await connection.execute(page)).mappings().all()
            sources: dict[Key, list[StoredSource]] = {}
            for row in (await connection.execute(SOURCES, arrays_of(KEY_COLUMNS, map(_key_of, rows)))).mappings():
                source = StoredSource(**{name: row[name] for name in StoredSource.__slots__})
                sources.setdefault(_key_of(row), []).append(source)
            return rows, sources

        return await self._database.run(work)


def _key_of(row: RowMapping) -> Key:
    return row["tenant"], row["answer_id"], row["revision"], row["settled_at"]


def _finding(row: RowMapping, sources: Sequence[StoredSource]) -> Finding:
    stored = StoredAttribution(sources=sources, **{name: row[name] for name in STORED_COLUMNS})
    return Finding(row["tenant"], row["answer_id"], row["revision"], differences_of(stored))


def _settled_since(since: datetime | None) -> ColumnElement[bool]:
    if since is None:
        return true()
    return attributions.c.settled_at >= (since if since.tzinfo else since.replace(tzinfo=UTC))
