"""Raw Kafka for tests: topics made, records put in and read back, without a line of the worker."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from worker.embedded.broker import Broker

Headers = Sequence[tuple[str, bytes]]


@asynccontextmanager
async def producer_of(broker: Broker, **options: object) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **options)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def admin_of(broker: Broker) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def create_topic(
    broker: Broker, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> str:
    """The topic's name, back again, once it is there."""
    async with admin_of(broker) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))])
    return topic


async def produce(
    broker: Broker,
    topic: str,
    values: Sequence[bytes | None],
    *,
    partition: int | None = None,
    key: bytes | None = None,
    headers: Headers = (),
) -> None:
    """One record per value, in order, acknowledged when this returns."""
    async with producer_of(broker) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, key=key, partition=partition, headers=list(headers))


async def consume(broker: Broker, topic: str, count: int) -> list[ConsumerRecord]:
    """The first `count` records of the topic, without a group; ends when they are there, so bound it from outside."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        records: list[ConsumerRecord] = []
        while len(records) < count:
            batches = await consumer.getmany(timeout_ms=500)
            records += [record for batch in batches.values() for record in batch]
        return records
    finally:
        await consumer.stop()


async def committed(broker: Broker, group: str, topic: str, partition: int = 0) -> int | None:
    """The group's committed offset, without joining it."""
    # A consumer with an assignment of its own: the admin client's request is one that the embedded broker mistakes.
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        where = TopicPartition(topic, partition)
        consumer.assign([where])
        offset: int | None = await consumer.committed(where)
        return offset
    finally:
        await consumer.stop()
