"""`AttributionStore` on PostgreSQL: look-ups and saves that share their round trips."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres.coalescer import coalescing
from worker.adapters.postgres.database import Database
from worker.adapters.postgres.dead_letter_positions import Position, find_set_aside, position_of
from worker.adapters.postgres.engine import FINDERS
from worker.adapters.postgres.group_commit import Origin, Save, find_settled, write_batch
from worker.core.model import AnswerKey, Attribution
from worker.core.records import OutboundMessage, Record
from worker.errors import RetryableError, WorkerError
from worker.ports import SaveResult, SetAside, SettledAnswer


@dataclass(frozen=True, slots=True)
class Look:
    """What a record asks for before it is processed."""

    key: AnswerKey
    position: Position


class PostgresAttributionStore:
    """See `AttributionStore`; made by `open_attribution_store`."""

    def __init__(
        self,
        find: Callable[[Look], Awaitable[SettledAnswer | SetAside | None]],
        save: Callable[[Save], Awaitable[SaveResult]],
    ) -> None:
        self._find = find
        self._save = save

    async def find(self, key: AnswerKey, record: Record) -> SettledAnswer | SetAside | None:
        return await self._find(Look(key, position_of(record)))

    async def save(
        self, attribution: Attribution, message: OutboundMessage, record: Record | None = None
    ) -> SaveResult:
        return await self._save(Save(attribution, message, None if record is None else position_of(record)))


@asynccontextmanager
async def open_attribution_store(database: Database, origin: Origin) -> AsyncIterator[PostgresAttributionStore]:
    """A store that works as long as the context; leaving it finishes what was submitted.

    Enter and leave it in one task, as any TaskGroup.
    """
    settings = database.settings
    batches = Batches(database, origin)
    async with (
        coalescing(
            batches.find, batch_max=settings.save_batch_max, timeout_s=settings.save_timeout_s, flushers=FINDERS
        ) as find,
        coalescing(
            batches.save,
            batch_max=settings.save_batch_max,
            timeout_s=settings.save_timeout_s,
            flushers=settings.writers,
        ) as save,
    ):
        yield PostgresAttributionStore(find, save)


class Batches:
    """What a flush does; remembers only which methods are known to be stored."""

    def __init__(self, database: Database, origin: Origin) -> None:
        self._database = database
        self._origin = origin
        self._known_methods: frozenset[bytes] = frozenset()

    async def find(self, looks: Sequence[Look]) -> Sequence[SettledAnswer | SetAside | None]:
        keys = sorted({look.key for look in looks})
        positions = [look.position for look in looks]

        async def work(connection: AsyncConnection) -> tuple[Mapping[AnswerKey, SettledAnswer], frozenset[Position]]:
            settled = await find_settled(connection, keys)
            return settled, await find_set_aside(connection, self._origin.topic, positions)

        settled, set_aside = await self._database.run(work)
        return [SetAside() if look.position in set_aside else settled.get(look.key) for look in looks]

    async def save(self, saves: Sequence[Save]) -> Sequence[SaveResult | Exception]:
        """All in one transaction; after a refused value one by one, so that only the culprit fails."""
        try:
            return await self._commit(saves)
        except RetryableError as error:
            if len(saves) == 1:
                return [error]
        return [await self._alone(save) for save in saves]

    async def _alone(self, save: Save) -> SaveResult | Exception:
        try:
            return (await self._commit([save]))[0]
        except WorkerError as error:
            return error

    async def _commit(self, saves: Sequence[Save]) -> Sequence[SaveResult]:
        known = self._known_methods
        results = await self._database.run(lambda connection: write_batch(connection, saves, self._origin, known))
        # Only now: a method of a transaction that was rolled back is not stored.
        self._known_methods |= {save.attribution.method.method_hash for save in saves}
        return results
