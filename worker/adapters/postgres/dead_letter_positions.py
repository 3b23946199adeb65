"""Which records are dead letters already: a redelivery must not give one a second outcome."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres.bulk import arrays_of, unnested
from worker.adapters.postgres.tables import dead_letters


class Position(NamedTuple):
    """Where a record of the answers topic stands; its timestamp tells it from one of a topic made anew."""

    partition: int
    record_offset: int
    record_timestamp_ms: int


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
