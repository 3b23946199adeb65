"""Dead letters at the operator's hand: the desk, and the replay that paces and publishes."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from worker.adapters.kafka.producer import KafkaPublisher
from worker.adapters.postgres.database import open_database
from worker.adapters.postgres.dead_letter_desk import DeadLetterDesk, Resolution
from worker.adapters.postgres.outbox_store import PostgresOutboxStore
from worker.ports import OutboxStore, Publisher
from worker.settings import Settings

PERIOD_S = 1.0


class Replaying:
    """Puts records back in front of the workers, so many a second.

    What was stored in the outbox and not published, because we were interrupted, goes out first.
    """

    def __init__(
        self,
        *,
        replay: Callable[[int], Awaitable[Resolution]],
        outbox: OutboxStore,
        publisher: Publisher,
        batch_max: int,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._replay = replay
        self._outbox = outbox
        self._publisher = publisher
        self._batch_max = batch_max
        self._sleep = sleep
        self._monotonic = monotonic

    async def run(
        self, ids: Sequence[int], *, per_second: int, progressed: Callable[[int], None]
    ) -> Mapping[int, Resolution]:
        """What became of each; `progressed` is told how many are done and published.

        Raises:
            UnavailableError: the broker or the database is down; run it again, nothing is lost or done twice.
        """
        await self._publish_stored()
        ended: dict[int, Resolution] = {}
        for start in range(0, len(ids), per_second):
            began_s = self._monotonic()
            chunk = ids[start : start + per_second]
            for dead_letter_id in chunk:
                ended[dead_letter_id] = await self._replay(dead_letter_id)
            await self._publish_stored()
            progressed(len(chunk))
            if start + per_second < len(ids):
                await self._sleep(max(0.0, began_s + PERIOD_S - self._monotonic()))
        return ended

    async def _publish_stored(self) -> None:
        while True:
            async with self._outbox.claim(self._batch_max) as rows:
                if not rows:
                    return
                await self._publisher.publish([row.message for row in rows])


@asynccontextmanager
async def open_dead_letter_desk(settings: Settings) -> AsyncIterator[DeadLetterDesk]:
    async with open_database(settings.postgres) as database:
        yield DeadLetterDesk(database)


async def replay_dead_letters(
    settings: Settings,
    ids: Sequence[int],
    *,
    note: str | None,
    per_second: int,
    progressed: Callable[[int], None] = lambda _: None,
) -> Mapping[Resolution, Sequence[int]]:
    """Replay these dead letters onto the answers topic; the ids by what became of them.

    The role that does this writes to the answers topic, which a worker's own may not.
    """
    topic = settings.kafka.answers_topic
    async with open_database(settings.postgres) as database, KafkaPublisher(settings.kafka) as publisher:
        desk = DeadLetterDesk(database)
        replaying = Replaying(
            replay=lambda dead_letter_id: desk.replay(dead_letter_id, to_topic=topic, note=note),
            outbox=PostgresOutboxStore(database, topic=topic),
            publisher=publisher,
            batch_max=settings.outbox.batch_max,
        )
        ended = await replaying.run(ids, per_second=per_second, progressed=progressed)
    counts = Counter(ended.values())
    return {end: [id_ for id_, became in ended.items() if became is end] for end in counts}
