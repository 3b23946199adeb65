"""That aiokafka, whose own tests stop at Kafka 2.8, does all that the worker needs on the Apache Kafka of today."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import MessageSizeTooLargeError

from tests.support.kafka import committed, consume, create_topic, produce, producer_of
from worker.embedded.broker import Broker

pytestmark = pytest.mark.kafka

DEADLINE_S = 40
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


@asynccontextmanager
async def member_of(
    broker: Broker, group: str, topic: str, listener: ConsumerRebalanceListener | None = None, **options: object
) -> AsyncIterator[AIOKafkaConsumer]:
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 300}
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=group, **{**defaults, **options})
    consumer.subscribe([topic], listener=listener)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def taken(consumer: AIOKafkaConsumer, count: int) -> list[bytes]:
    async with asyncio.timeout(DEADLINE_S):
        return [(await consumer.getone()).value for _ in range(count)]


class Assignments(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka ships no types
    """What a member was given and lost, in order."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, frozenset[int]]] = []
        self.now: frozenset[int] = frozenset()
        self.changed = asyncio.Condition()

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._note("revoked", frozenset(), revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await self._note("assigned", frozenset(partition.partition for partition in assigned), assigned)

    async def _note(self, change: str, now: frozenset[int], partitions: set[TopicPartition]) -> None:
        async with self.changed:
            self.changes.append((change, frozenset(partition.partition for partition in partitions)))
            self.now = now
            self.changed.notify_all()

    async def until_it_has(self, count: int) -> frozenset[int]:
        async with asyncio.timeout(DEADLINE_S), self.changed:
            await self.changed.wait_for(lambda: len(self.now) == count)
            return self.now


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
async def test_records_of_every_codec_arrive_in_order_with_their_headers(
    apache_kafka: Broker, topics_prefix: str, codec: str | None, *, idempotent: bool
) -> None:
    topic = await create_topic(apache_kafka, topics_prefix)
    values = [f"{n:04d}".encode() * 50 for n in range(200)]
    headers = [("ce_id", "é".encode()), ("empty", b"")]
    async with producer_of(apache_kafka, compression_type=codec, enable_idempotence=idempotent) as producer:
        acknowledged = [await producer.send(topic, value, key=b"k", headers=headers) for value in values]
        assert [(await sent).offset for sent in acknowledged] == list(range(200))

    records = await consume(apache_kafka, topic, len(values))

    assert [record.value for record in records] == values
    assert all(record.key == b"k" and list(record.headers) == headers for record in records)


async def test_a_commit_of_one_partition_leaves_the_others_alone(apache_kafka: Broker, topics_prefix: str) -> None:
    topic = await create_topic(apache_kafka, topics_prefix, partitions=2)
    for partition in range(2):
        await produce(apache_kafka, topic, [b"1", b"2", b"3"], partition=partition)
    group = f"{topic}.group"
    async with member_of(apache_kafka, group, topic) as member:
        await taken(member, 6)
        await member.commit({TopicPartition(topic, 1): 2})

    assert await committed(apache_kafka, group, topic, 0) is None
    assert await committed(apache_kafka, group, topic, 1) == 2


async def test_a_group_goes_on_from_its_commit(apache_kafka: Broker, topics_prefix: str) -> None:
    topic = await create_topic(apache_kafka, topics_prefix)
    await produce(apache_kafka, topic, [b"1", b"2", b"3"])
    group = f"{topic}.group"
    async with member_of(apache_kafka, group, topic) as member:
        assert await taken(member, 2) == [b"1", b"2"]
        await member.commit()
    async with member_of(apache_kafka, group, topic) as member:
        assert await taken(member, 1) == [b"3"]


async def test_two_members_share_the_partitions_and_one_takes_over_when_the_other_leaves(
    apache_kafka: Broker, topics_prefix: str
) -> None:
    topic = await create_topic(apache_kafka, topics_prefix, partitions=4)
    group = f"{topic}.group"
    first, second = Assignments(), Assignments()
    async with member_of(apache_kafka, group, topic, first):
        assert await first.until_it_has(4) == {0, 1, 2, 3}
        async with member_of(apache_kafka, group, topic, second):
            assert await first.until_it_has(2) | await second.until_it_has(2) == {0, 1, 2, 3}
        assert await first.until_it_has(4) == {0, 1, 2, 3}
    # Eager: everything is revoked before anything is assigned.
    assert ("revoked", frozenset({0, 1, 2, 3})) in first.changes


async def test_a_static_member_that_comes_back_in_time_moves_nothing(apache_kafka: Broker, topics_prefix: str) -> None:
    topic = await create_topic(apache_kafka, topics_prefix, partitions=2)
    group = f"{topic}.group"
    stays, returns, back = Assignments(), Assignments(), Assignments()
    async with member_of(apache_kafka, group, topic, stays, group_instance_id="a"):
        async with member_of(apache_kafka, group, topic, returns, group_instance_id="b"):
            await stays.until_it_has(1)
            had = await returns.until_it_has(1)
        before = list(stays.changes)
        async with member_of(apache_kafka, group, topic, back, group_instance_id="b"):
            assert await back.until_it_has(1) == had
        assert stays.changes == before


async def test_a_record_above_the_topics_limit_is_refused(apache_kafka: Broker, topics_prefix: str) -> None:
    topic = await create_topic(apache_kafka, topics_prefix, configs={"max.message.bytes": "2000"})
    async with producer_of(apache_kafka) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, b"x" * 3_000)


async def test_a_group_without_commits_starts_at_the_earliest_record(apache_kafka: Broker, topics_prefix: str) -> None:
    topic = await create_topic(apache_kafka, topics_prefix)
    await produce(apache_kafka, topic, [b"old"])
    async with member_of(apache_kafka, f"{topic}.group", topic) as member:
        assert await taken(member, 1) == [b"old"]
        where = TopicPartition(topic, 0)
        assert await member.end_offsets([where]) == {where: 1}
