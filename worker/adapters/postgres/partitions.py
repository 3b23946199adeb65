"""Monthly partitions: made ahead of time, filled from the default partition if they come late, dropped when old."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from worker.adapters.postgres.tables import PARTITIONED_BY

MONTHLY = re.compile(r"_([0-9]{4})_([0-9]{2})$")


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """A calendar month in UTC."""

    year: int
    number: int

    def plus(self, months: int) -> "Month":
        ordinal = self.year * 12 + self.number - 1 + months
        return Month(ordinal // 12, ordinal % 12 + 1)

    @property
    def start(self) -> datetime:
        return datetime(self.year, self.number, 1, tzinfo=UTC)

    @property
    def suffix(self) -> str:
        return f"{self.year:04d}_{self.number:02d}"


async def ensure_partitions(engine: AsyncEngine, *, ahead_months: int) -> list[str]:
    """Make the partitions of this month and the months ahead that do not exist; returns the names of the new ones.

    Without them rows land in the default partition: nothing is lost, and a later call moves them out of it.
    """
    async with engine.begin() as connection:
        current = await current_month(connection)
    made = []
    for table, column in PARTITIONED_BY.items():
        for ahead in range(ahead_months + 1):
            async with engine.begin() as connection:
                if await _make(connection, table.name, column, current.plus(ahead)):
                    made.append(f"{table.name}_{current.plus(ahead).suffix}")
    return made


async def missing_partitions(engine: AsyncEngine, *, ahead_months: int) -> list[str]:
    """Names of the partitions of this month and the months ahead that do not exist."""
    async with engine.begin() as connection:
        current = await current_month(connection)
        names = [f"{t.name}_{current.plus(ahead).suffix}" for t in PARTITIONED_BY for ahead in range(ahead_months + 1)]
        return [name for name in names if not await _exists(connection, name)]


async def may_make_partitions(engine: AsyncEngine) -> bool:
    """Whether we are the owner: nobody else may attach a partition, whatever is granted."""
    owned = text(
        "SELECT bool_and(pg_has_role(relowner, 'USAGE')) FROM pg_class WHERE oid = ANY(CAST(:tables AS regclass[]))"
    )
    async with engine.begin() as connection:
        found = await connection.execute(owned, {"tables": [table.name for table in PARTITIONED_BY]})
        return bool(found.scalar_one())


async def drop_expired_partitions(engine: AsyncEngine, *, retention_months: int) -> list[str]:
    """Drop every partition older than `retention_months` whole months before this one; returns their names.

    The key table `answers` keeps its rows: an answer whose attribution is gone is still never settled twice.
    """
    dropped = []
    async with engine.begin() as connection:
        oldest_kept = (await current_month(connection)).plus(-retention_months)
        for table in PARTITIONED_BY:
            for name in await _partitions(connection, table.name):
                found = MONTHLY.search(name)
                if found and Month(int(found[1]), int(found[2])) < oldest_kept:
                    await connection.execute(text(f"DROP TABLE {name}"))
                    dropped.append(name)
    return dropped


async def current_month(connection: AsyncConnection) -> Month:
    """By database time."""
    now = (await connection.execute(select(func.now()))).scalar_one().astimezone(UTC)
    return Month(now.year, now.month)


async def _partitions(connection: AsyncConnection, table: str) -> list[str]:
    children = text(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass(:parent) ORDER BY 1"
    )
    return list((await connection.execute(children, {"parent": table})).scalars())


async def _exists(connection: AsyncConnection, name: str) -> bool:
    # Not to_regclass(): it may answer from a cache that the wait for an advisory lock did not refresh.
    ours = "SELECT FROM pg_class WHERE relname = :name AND relnamespace = current_schema()::regnamespace"
    found = text(f"SELECT EXISTS ({ours})")
    return bool((await connection.execute(found, {"name": name})).scalar_one())


async def _make(connection: AsyncConnection, table: str, column: str, month: Month) -> bool:
    name = f"{table}_{month.suffix}"
    if await _exists(connection, name):
        return False
    # Workers start together; the one that waited finds the partition made.
    lock = func.hashtextextended("attribution-worker partitions", 0)
    await connection.execute(select(func.pg_advisory_xact_lock(lock)))
    if await _exists(connection, name):
        return False
    first, end = month.start.isoformat(), month.plus(1).start.isoformat()
    await connection.execute(text(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)"))
    # ATTACH locks only the default partition against writers, where CREATE … PARTITION OF would lock the whole table.
    # It fails while the default partition holds rows of this month, so these move first, under the same lock.
    await connection.execute(text(f"LOCK TABLE {table}_default IN ACCESS EXCLUSIVE MODE"))
    late = f"{column} >= '{first}' AND {column} < '{end}'"
    moved = f"DELETE FROM {table}_default WHERE {late} RETURNING *"  # noqa: S608  # names and dates are ours
    await connection.execute(text(f"WITH moved AS ({moved}) INSERT INTO {name} TABLE moved"))
    await connection.execute(
        text(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{first}') TO ('{end}')")
    )
    return True
