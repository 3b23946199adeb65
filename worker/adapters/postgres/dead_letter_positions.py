"""Which records are dead letters already: neither a redelivery nor a second worker may give one a second outcome.

Two workers may have one record at once: a frozen one that wakes, or one whose drain ended early. Whoever sets it aside
holds the lock alone and looks for an attribution; whoever attributes shares it and looks for a dead letter. So each
sees what the other has committed, and the later one leaves the record as it is.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres.bulk import arrays_of, unnested
from worker.adapters.postgres.tables import dead_letters
from worker.core.records import Record


class Position(NamedTuple):
    """Where a record of the answers topic stands; its timestamp tells it from one of a topic made anew."""

    partition: int
    record_offset: int
    record_timestamp_ms: int


def position_of(record: Record) -> Position:
    return Position(record.partition, record.offset, record.timestamp_ms)


COLUMNS = [dead_letters.c[name] for name in Position._fields]
_wanted = unnested(COLUMNS)
FIND = (
    select(*COLUMNS)
    .join(
        _wanted,
        (dead_letters.c.partition == _wanted.c.partition) & (dead_letters.c.record_offset == _wanted.c.record_offset),
    )
    .where(
        dead_letters.c.topic == bindparam("topic"),
        dead_letters.c.record_timestamp_ms == _wanted.c.record_timestamp_ms,
    )
)


async def find_set_aside(connection: AsyncConnection, topic: str, positions: Sequence[Position]) -> frozenset[Position]:
    """Those of these positions of the topic that hold a dead letter."""
    found = await connection.execute(FIND, {"topic": topic, **arrays_of(COLUMNS, positions)})
    return frozenset(Position(*row) for row in found)


async def lock_alone(connection: AsyncConnection, topic: str) -> None:
    """For this transaction: no record of the topic is attributed or set aside by another."""
    await connection.execute(select(func.pg_advisory_xact_lock(_lock_of(topic))))


async def lock_shared(connection: AsyncConnection, topic: str) -> None:
    """For this transaction: no record of the topic is set aside by another."""
    await connection.execute(select(func.pg_advisory_xact_lock_shared(_lock_of(topic))))


def _lock_of(topic: str) -> ColumnElement[int]:
    return func.hashtextextended(f"attribution-worker dead letters {topic}", 0)
