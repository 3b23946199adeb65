"""`OutboxStore` on PostgreSQL: many relays, each holding its rows locked until they are published."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from sqlalchemy import ARRAY, BigInteger, ColumnElement, any_, bindparam, delete, exists, func, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres.database import Database, errors_translated
from worker.adapters.postgres.headers import decode_headers
from worker.adapters.postgres.tables import outbox
from worker.core.records import OutboundMessage
from worker.ports import OutboxRow

_earlier = outbox.alias("earlier")
# A row whose predecessor another relay holds is left alone too: the predecessor is there until that relay commits.
OLDEST_OF_EACH_KEY = (
    select(outbox.c.outbox_id, outbox.c.topic, outbox.c.key, outbox.c.value, outbox.c.headers)
    .where(
        ~exists().where(
            _earlier.c.key == outbox.c.key,
            _earlier.c.topic == outbox.c.topic,
            _earlier.c.outbox_id < outbox.c.outbox_id,
        )
    )
    .order_by(outbox.c.outbox_id)
    .with_for_update(skip_locked=True, of=outbox)
)
DELETE_PUBLISHED = delete(outbox).where(outbox.c.outbox_id == any_(bindparam("published", type_=ARRAY(BigInteger))))


class PostgresOutboxStore:
    """See `OutboxStore`. Rows without a key owe no order to one another.

    A record replayed from the dead letters waits here too, for whoever may write to the answers topic; a worker may
    only read it. So the workers' relay leaves that topic to the operator's.

    Args:
        database: where the outbox is.
        topic: publish to this topic only.
        leaves: publish to every topic but this one.
    """

    def __init__(self, database: Database, *, topic: str | None = None, leaves: str | None = None) -> None:
        self._database = database
        self._ours: ColumnElement[bool] = true()
        if topic is not None:
            self._ours &= outbox.c.topic == topic
        if leaves is not None:
            self._ours &= outbox.c.topic != leaves
        # Made once: making and reading the two statements took 100 µs of every claim.
        self._claim = OLDEST_OF_EACH_KEY.where(self._ours).limit(bindparam("rows_max"))

    @asynccontextmanager
    async def claim(self, rows_max: int) -> AsyncIterator[Sequence[OutboxRow]]:
        async with AsyncExitStack() as held:
            with errors_translated():
                connection = await held.enter_async_context(self._database.transaction())
                found = await connection.execute(self._claim, {"rows_max": rows_max})
                rows = [_row(*values) for values in found]
            yield rows
            with errors_translated():
                if rows:
                    published = [row.outbox_id for row in rows]
                    await connection.execute(DELETE_PUBLISHED, {"published": published})
                # Commits here, where an error of the commit is still translated.
                await held.aclose()

    async def pending(self) -> int:
        async def count(connection: AsyncConnection) -> int:
            return (await connection.execute(select(func.count()).select_from(outbox).where(self._ours))).scalar_one()

        return await self._database.run(count)


def _row(outbox_id: int, topic: str, key: bytes | None, value: bytes | None, headers: bytes) -> OutboxRow:
    return OutboxRow(outbox_id, OutboundMessage(topic, key, value, decode_headers(headers)))
