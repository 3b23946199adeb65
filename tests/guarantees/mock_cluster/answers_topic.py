"""The answers topic of one test: what was put in, what must hold of it in the end, and members that wait on command."""

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from tests.integration.kafka.ledger import Ledger
from tests.support.conditions import until, until_equal
from tests.support.kafka import committed, consume, producer_of
from tests.support.mock_kafka import Api, MockKafka
from worker.core.records import Record
from worker.settings import KafkaSettings

PATIENCE_S = 20.0


class AnswersTopic:
    """Numbered records in every partition, and the oracle over them."""

    def __init__(self, cluster: MockKafka, settings: KafkaSettings, *, partitions: int) -> None:
        self.cluster = cluster
        self.settings = settings
        self.ends = [0] * partitions
        cluster.create_topic(settings.answers_topic, partitions=partitions)

    async def fill(self, records_per_partition: int) -> None:
        async with producer_of(self.cluster) as producer:
            for partition, end in enumerate(self.ends):
                for offset in range(end, end + records_per_partition):
                    await producer.send(self.settings.answers_topic, b"%d" % offset, partition=partition)
            await producer.flush()
        self.ends = [end + records_per_partition for end in self.ends]

    @property
    def records(self) -> set[tuple[int, int]]:
        return {(partition, offset) for partition, end in enumerate(self.ends) for offset in range(end)}

    async def committed(self) -> Sequence[int | None]:
        """As a reader that is no member is told."""
        group, topic = self.settings.group_id, self.settings.answers_topic
        return [await committed(self.cluster, group, topic, partition) for partition in range(len(self.ends))]

    async def asked(self, api: Api, times: int) -> None:
        """Returns once that many further requests of this kind have come: whatever they were to be told, they were."""
        before = self.cluster.requests()[api]
        await until(lambda: self.cluster.requests()[api] >= before + times, PATIENCE_S)

    async def prove(self, ledger: Ledger) -> None:
        """Nothing is lost and nothing is skipped: settled to the end, committed to the end, never past a gap."""
        await until(lambda: set(ledger.settled) >= self.records, PATIENCE_S)
        await until_equal(self.committed, self.ends, PATIENCE_S)
        assert set(ledger.settled) == self.records
        assert ledger.committed_too_far == []


class HeldLedger(Ledger):
    """Holds chosen records back, as partition and offset, until they are let go."""

    def __init__(self, *held: tuple[int, int], seed: int = 0) -> None:
        super().__init__(seed=seed)
        self._held = set(held)
        self.let_go = asyncio.Event()

    async def settle(self, record: Record) -> None:
        if (record.partition, record.offset) in self._held:
            await self.let_go.wait()
        await super().settle(record)


async def everything_in(cluster: MockKafka, topic: str, *, partitions: int) -> list[ConsumerRecord]:
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)
    await consumer.start()
    try:
        ends = await consumer.end_offsets([TopicPartition(topic, number) for number in range(partitions)])
    finally:
        await consumer.stop()
    async with asyncio.timeout(PATIENCE_S):
        return await consume(cluster, topic, sum(ends.values()))
