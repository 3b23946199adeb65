"""Topics and groups as an onlooker reads them: without joining, without a line of the worker."""

from collections.abc import Mapping, Sequence

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from worker.core.records import Record
from worker.embedded.broker import Broker


async def read_all(broker: Broker, topic: str, partitions_count: int) -> Sequence[Record]:
    """Every record that is in the topic now."""
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, number) for number in range(partitions_count)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        records: list[Record] = []
        while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
            batches = await consumer.getmany(timeout_ms=200)
            records += [copied(record) for batch in batches.values() for record in batch]
        return records
    finally:
        await consumer.stop()


async def ends_of(broker: Broker, topic: str, partitions: int) -> Mapping[int, int]:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    await consumer.start()
    try:
        ends = await consumer.end_offsets([TopicPartition(topic, number) for number in range(partitions)])
        return {partition.partition: end for partition, end in ends.items()}
    finally:
        await consumer.stop()


async def committed_by(broker: Broker, group: str) -> Mapping[int, int]:
    """The group's committed offset by partition; of partitions without one, nothing."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=3_000)
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(group)
        return {partition.partition: meta.offset for partition, meta in offsets.items() if meta.offset >= 0}
    finally:
        await admin.close()


def copied(record: ConsumerRecord) -> Record:
    return Record(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )
