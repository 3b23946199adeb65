"""A ledger of what was settled, and members that check every commit against it."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from worker.adapters.kafka.consumer import KafkaRecordStream
from worker.consume import Consume
from worker.core.records import Record, TopicPartition
from worker.settings import IntakeSettings, KafkaSettings


class Ledger:
    """Every record settled, by anybody, and every commit that went past one that was not."""

    def __init__(self, *, seed: int = 0, pause_max_s: float = 0.02) -> None:
        self.settled: Counter[tuple[int, int]] = Counter()
        self.committed_too_far: list[tuple[TopicPartition, int]] = []
        self._random = random.Random(seed)
        self._pause_max_s = pause_max_s

    async def settle(self, record: Record) -> None:
        # Long and short records mixed, so that they end out of order.
        await asyncio.sleep(self._random.random() * self._pause_max_s)
        self.settled[record.partition, record.offset] += 1

    def check(self, offsets: Mapping[TopicPartition, int]) -> None:
        for topic_partition, next_offset in offsets.items():
            if any((topic_partition.partition, offset) not in self.settled for offset in range(next_offset)):
                self.committed_too_far.append((topic_partition, next_offset))


class CheckedStream(KafkaRecordStream):
    """Shows each commit to the ledger before the broker sees it."""

    def __init__(self, settings: KafkaSettings, ledger: Ledger) -> None:
        super().__init__(settings)
        self._ledger = ledger

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._ledger.check(offsets)
        await super().commit(offsets)


class Member:
    def __init__(self, settings: KafkaSettings, ledger: Ledger) -> None:
        self.stream = CheckedStream(settings, ledger)
        self.consume = Consume(
            stream=self.stream,
            settle=ledger.settle,
            intake=IntakeSettings(records_max=20),
            kafka=settings,
            drain_s=5,
        )
        self.stop = asyncio.Event()

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.consume.state().partitions)


@asynccontextmanager
async def member_of(settings: KafkaSettings, ledger: Ledger) -> AsyncIterator[Member]:
    """A member at work; it stops in order when the test leaves."""
    member = Member(settings, ledger)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(member.consume.run(member.stop))
        try:
            yield member
        finally:
            member.stop.set()
