"""Watches every commit of a group while it works: what lies below it must have its outcome in the database already."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import asyncpg
from aiokafka.errors import KafkaError

from tests.guarantees.chaos.topics import committed_by
from tests.guarantees.evidence import Sent
from worker.embedded.broker import Broker

PAUSE_S = 0.25
LOOK_S_MAX = 5.0
UNREACHABLE = (
    OSError,
    KafkaError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""What a look meets while a service is down; it is taken again."""

WITHOUT_OUTCOME = """
    SELECT r.partition, r.record_offset
    FROM unnest($2::int[], $3::bigint[], $4::text[], $5::text[], $6::bytea[])
        AS r (partition, record_offset, tenant, answer_id, content_hash)
    WHERE NOT EXISTS (
        SELECT FROM dead_letters d
        WHERE d.topic = $1 AND d.partition = r.partition AND d.record_offset = r.record_offset
    ) AND NOT EXISTS (
        SELECT FROM answers a
        WHERE a.tenant = r.tenant AND a.answer_id = r.answer_id AND a.content_hash = r.content_hash
    )
"""


class CommitWatch:
    """Looks at what was newly committed since its last look; what is stored stays, so nothing is looked at twice."""

    def __init__(self, broker: Broker, dsn: str, *, group: str, topic: str) -> None:
        self._broker = broker
        self._dsn = dsn
        self._group = group
        self._topic = topic
        self._records: dict[int, list[Sent]] = {}
        self._seen: dict[int, int] = {}
        self._looked = asyncio.Event()
        self.looks = 0
        self.committed_too_far: list[str] = []

    @property
    def committed(self) -> int:
        """Records below the committed offsets, at the last look."""
        return sum(self._seen.values())

    def was_sent(self, sent: Sent) -> None:
        """To be told in any order, at the latest when the campaign's producer has its acknowledgement."""
        self._records.setdefault(sent.record.partition, []).append(sent)

    async def reached(self, records: float) -> None:
        """Returns once so many are committed."""
        while self.committed < records:
            self._looked.clear()
            await self._looked.wait()

    async def regularly(self) -> None:
        while True:
            with suppress(*UNREACHABLE):
                async with asyncio.timeout(LOOK_S_MAX):
                    await self.look()
            await asyncio.sleep(PAUSE_S)

    async def look(self) -> None:
        # In this order: what is committed now must have been stored before.
        committed = await committed_by(self._broker, self._group)
        due: list[Sent] = []
        for partition, offset in committed.items():
            seen = self._seen.get(partition, 0)
            if offset < seen:
                self.committed_too_far.append(f"partition {partition}: committed {offset} after {seen}")
            due += [
                sent
                for sent in self._records.get(partition, ())
                if seen <= sent.record.offset < offset and not _skipped(sent)
            ]
        due = [sent for sent in due if not _skipped(sent)]
        for partition, offset in await self._without_outcome(due) if due else ():
            self.committed_too_far.append(
                f"partition {partition}: committed {committed[partition]}, and offset {offset} has no outcome"
            )
        self._seen |= committed
        self.looks += 1
        self._looked.set()

    async def _without_outcome(self, due: Sequence[Sent]) -> Sequence[tuple[int, int]]:
        partitions, offsets = zip(*(sent.position for sent in due), strict=True)
        keys = [sent.answer.key if sent.answer else None for sent in due]
        connection = await asyncpg.connect(self._dsn, timeout=2.0)
        try:
            rows = await connection.fetch(
                WITHOUT_OUTCOME,
                self._topic,
                partitions,
                offsets,
                [key and key.tenant for key in keys],
                [key and key.answer_id for key in keys],
                [sent.answer.content_hash if sent.answer else None for sent in due],
                timeout=3.0,
            )
        finally:
            await connection.close(timeout=2.0)
        return [(row["partition"], row["record_offset"]) for row in rows]


def _skipped(sent: Sent) -> bool:
    return sent.answer is None and sent.refusal is None
