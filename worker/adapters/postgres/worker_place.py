"""A worker's static membership, fenced: of two processes with one `group_instance_id` the older one leaves.

Kafka fences an old static member only by requests that name its instance. The client's heartbeats and commits do not:
to the broker a worker that was frozen past its session, and replaced, is merely unknown; it joins again and throws its
successor out, which joins again, and so on without end.
"""

from uuid import UUID, uuid4

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres.database import Database
from worker.adapters.postgres.tables import worker_places
from worker.errors import FatalError
from worker.settings import KafkaSettings

IDENTITY = [worker_places.c.group_id, worker_places.c.group_instance_id]


class PostgresWorkerPlace:
    """See `WorkerPlace`. A worker without an instance id has no place, and nobody to leave it to."""

    def __init__(self, database: Database, settings: KafkaSettings, worker_id: UUID | None = None) -> None:
        self._database = database
        self._group = settings.group_id
        self._instance = settings.group_instance_id
        self._worker_id = worker_id or uuid4()

    async def take(self) -> None:
        row = {"group_id": self._group, "group_instance_id": self._instance, "worker_id": self._worker_id}
        taken = insert(worker_places).values(row)
        taken = taken.on_conflict_do_update(
            index_elements=IDENTITY, set_={"worker_id": taken.excluded.worker_id, "taken_at": func.now()}
        )

        async def write(connection: AsyncConnection) -> None:
            await connection.execute(taken)

        if self._instance is not None:
            await self._database.run(write)

    async def check(self) -> None:
        held = (column == value for column, value in zip(IDENTITY, (self._group, self._instance), strict=True))
        query = select(worker_places.c.worker_id).where(*held)

        async def read(connection: AsyncConnection) -> UUID | None:
            return (await connection.execute(query)).scalar_one_or_none()

        if self._instance is not None and await self._database.run(read) != self._worker_id:
            raise FatalError(
                f"another worker has taken the place of this one, {self._instance} of group {self._group}: no two that "
                "run at once may have one ATTRIBUTION_KAFKA__GROUP_INSTANCE_ID"
            )
