"""What every `RecordStream` must do: the fake, Apache Kafka and the embedded broker alike."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

import pytest

from tests.fakes.stream import FakeBroker
from tests.support.conditions import until
from tests.support.kafka import committed, create_topic, produce
from worker.adapters.kafka.consumer import KafkaRecordStream
from worker.core.records import Record, TopicPartition
from worker.embedded.broker import Broker
from worker.ports import RebalanceListener, RecordStream
from worker.settings import KafkaSettings

PARTITIONS = 4
FETCHES_MAX = 200


class Group(Protocol):
    """A topic with four partitions, and members of one group that reads it."""

    topic: str

    def member(self) -> RecordStream: ...

    async def append(self, partition: int, values: Sequence[bytes]) -> None: ...

    async def committed(self, partition: int) -> int | None: ...


class FakeGroup:
    topic = "answers"

    def __init__(self) -> None:
        self.broker = FakeBroker(partitions=PARTITIONS)

    def member(self) -> RecordStream:
        return self.broker.member()

    async def append(self, partition: int, values: Sequence[bytes]) -> None:
        for value in values:
            self.broker.append(partition, value)
        await self.broker.announce()

    async def committed(self, partition: int) -> int | None:
        return self.broker.committed.get(self.broker.partitions[partition])


class KafkaGroup:
    def __init__(self, broker: Broker, topic: str) -> None:
        self.topic = topic
        self.broker = broker
        self.settings = KafkaSettings.model_validate(
            {
                "session_timeout_ms": 6_000,
                "heartbeat_interval_ms": 100,
                **broker.settings_overrides(),
                "answers_topic": topic,
                "group_id": topic,
            }
        )

    def member(self) -> RecordStream:
        return KafkaRecordStream(self.settings)

    async def append(self, partition: int, values: Sequence[bytes]) -> None:
        await produce(self.broker, self.topic, values, partition=partition)

    async def committed(self, partition: int) -> int | None:
        return await committed(self.broker, self.topic, self.topic, partition)


class Listener:
    """Notes what came and went."""

    def __init__(self) -> None:
        self.assigned: list[frozenset[TopicPartition]] = []
        self.revoked: list[frozenset[TopicPartition]] = []

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.assigned.append(frozenset(partitions))

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.revoked.append(frozenset(partitions))


@pytest.fixture(params=["fake", pytest.param("apache", marks=pytest.mark.kafka), "embedded"])
def broker(request: pytest.FixtureRequest) -> Broker | None:
    names = {"apache": "apache_kafka", "embedded": "embedded_broker"}
    if request.param not in names:
        return None
    broker: Broker = request.getfixturevalue(names[request.param])
    return broker


@pytest.fixture
async def group(broker: Broker | None, topics_prefix: str) -> Group:
    if broker is None:
        return FakeGroup()
    return KafkaGroup(broker, await create_topic(broker, f"{topics_prefix}.answers", partitions=PARTITIONS))


@asynccontextmanager
async def started(group: Group, listener: RebalanceListener | None = None) -> AsyncIterator[RecordStream]:
    stream = group.member()
    await stream.start(listener or Listener())
    try:
        yield stream
    finally:
        await stream.stop()


async def read(stream: RecordStream, count: int, *, records_max: int = 10) -> list[Record]:
    records: list[Record] = []
    for _ in range(FETCHES_MAX):
        records += await stream.fetch(records_max=records_max, timeout_ms=500)
        if len(records) >= count:
            return records
    raise AssertionError(f"{len(records)} of {count} records after {FETCHES_MAX} fetches")


def values_of(records: Sequence[Record], partition: int) -> list[bytes | None]:
    return [record.value for record in records if record.partition == partition]


def numbered(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


async def test_a_group_without_commits_starts_at_the_earliest_record(group: Group) -> None:
    await group.append(0, numbered("a", 3))
    async with started(group) as stream:
        records = await read(stream, 3)

    assert [(record.topic, record.partition, record.offset) for record in records] == [
        (group.topic, 0, offset) for offset in range(3)
    ]


async def test_each_partition_is_read_in_order(group: Group) -> None:
    for partition in range(PARTITIONS):
        await group.append(partition, numbered(f"{partition}-", 7))
    async with started(group) as stream:
        records = await read(stream, 7 * PARTITIONS, records_max=5)

    for partition in range(PARTITIONS):
        assert values_of(records, partition) == numbered(f"{partition}-", 7)


async def test_a_fetch_brings_no_more_than_asked_for(group: Group) -> None:
    for partition in range(PARTITIONS):
        await group.append(partition, numbered("a", 5))
    async with started(group) as stream:
        fetches: list[Sequence[Record]] = []
        while sum(map(len, fetches)) < 5 * PARTITIONS:
            fetches.append(await stream.fetch(records_max=3, timeout_ms=500))

    assert max(len(records) for records in fetches) == 3


async def test_a_long_partition_does_not_starve_a_short_one(group: Group) -> None:
    await group.append(0, numbered("long", 100))
    await group.append(1, numbered("short", 1))
    async with started(group) as stream:
        records: list[Record] = []
        for _ in range(FETCHES_MAX):
            records += await stream.fetch(records_max=4, timeout_ms=500)
            if values_of(records, 1):
                break

    assert len(values_of(records, 0)) < 100


async def test_a_paused_partition_brings_nothing_until_it_is_resumed(group: Group) -> None:
    paused, other = TopicPartition(group.topic, 0), TopicPartition(group.topic, 1)
    await group.append(0, numbered("a", 2))
    async with started(group) as stream:
        await read(stream, 2)
        stream.pause([paused])
        await group.append(0, numbered("b", 2))
        await group.append(1, numbered("c", 2))
        records = await read(stream, 2)
        records += await stream.fetch(records_max=10, timeout_ms=500)
        assert {record.topic_partition for record in records} == {other}

        stream.resume([paused])
        assert values_of(await read(stream, 2), 0) == numbered("b", 2)


async def test_a_member_may_poll_while_everything_is_paused(group: Group) -> None:
    await group.append(0, numbered("a", 2))
    async with started(group) as stream:
        await read(stream, 2)
        stream.pause(stream.assignment())
        await group.append(0, numbered("b", 2))

        assert await stream.fetch(records_max=1, timeout_ms=0) == []
        assert await stream.fetch(records_max=10, timeout_ms=300) == []


async def test_what_was_fetched_and_paused_away_is_fetched_again(group: Group) -> None:
    await group.append(0, numbered("a", 5))
    async with started(group) as stream:
        records = await read(stream, 2, records_max=2)
        stream.pause(stream.assignment())
        assert await stream.fetch(records_max=10, timeout_ms=0) == []
        stream.resume(stream.assignment())
        records += await read(stream, 3)

    assert values_of(records, 0) == numbered("a", 5)


async def test_a_group_that_comes_back_goes_on_at_its_commits(group: Group) -> None:
    await group.append(0, numbered("a", 5))
    await group.append(1, numbered("b", 2))
    async with started(group) as stream:
        await read(stream, 7)
        await stream.commit({TopicPartition(group.topic, 0): 3})
    assert await group.committed(0) == 3

    async with started(group) as stream:
        records = await read(stream, 4)

    assert values_of(records, 0) == numbered("a", 5)[3:]
    assert values_of(records, 1) == numbered("b", 2)


async def test_a_commit_of_a_partition_that_is_not_ours_is_left_out(group: Group) -> None:
    """aiokafka#828: one lost partition refused the commit of all, and ended the consumer."""
    await group.append(0, numbered("a", 2))
    async with started(group) as stream:
        await read(stream, 2)
        await stream.commit({TopicPartition("another-topic", 0): 5, TopicPartition(group.topic, 0): 2})
        await stream.commit({TopicPartition("another-topic", 0): 5})

    assert await group.committed(0) == 2


async def test_lag_becomes_known_and_ends_at_nothing(group: Group) -> None:
    await group.append(0, numbered("a", 3))
    async with started(group) as stream:
        assert set(stream.lag()) == stream.assignment()
        records = await read(stream, 3)
        for _ in range(FETCHES_MAX):
            if set(stream.lag().values()) == {0}:
                break
            records += await stream.fetch(records_max=10, timeout_ms=500)

        assert set(stream.lag().values()) == {0}
        assert len(stream.lag()) == PARTITIONS
        assert len(records) == 3


async def test_a_second_member_takes_half_and_both_are_told(group: Group) -> None:
    first_listener, second_listener = Listener(), Listener()
    everything = frozenset(TopicPartition(group.topic, number) for number in range(PARTITIONS))
    async with started(group, first_listener) as first:
        assert first.assignment() == everything
        async with polled(first), started(group, second_listener) as second:
            assert first_listener.revoked[-1] == everything
            assert len(second.assignment()) == PARTITIONS // 2
            assert second.assignment() == second_listener.assigned[-1]
            await until(lambda: first_listener.assigned[-1] == everything - second.assignment())
            assert first.assignment() == first_listener.assigned[-1]


async def test_records_of_a_lost_partition_go_on_at_its_new_owner(group: Group) -> None:
    for partition in range(PARTITIONS):
        await group.append(partition, numbered(f"{partition}-", 4))
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(started(group))
        await read(first, 4 * PARTITIONS)
        await first.commit({TopicPartition(group.topic, number): 3 for number in range(PARTITIONS)})
        await stack.enter_async_context(polled(first))
        second = await stack.enter_async_context(started(group))
        records = await read(second, PARTITIONS // 2)

    assert {(record.partition, record.offset) for record in records} == {
        (partition.partition, 3) for partition in {record.topic_partition for record in records}
    }
    assert len(records) == PARTITIONS // 2


async def test_stopping_twice_is_harmless(group: Group) -> None:
    stream = group.member()
    await stream.start(Listener())
    await stream.stop()
    await stream.stop()


@asynccontextmanager
async def polled(stream: RecordStream) -> AsyncIterator[None]:
    """Polls on beside the test, as a member must."""

    async def poll() -> None:
        while True:
            await stream.fetch(records_max=1, timeout_ms=100)

    async with asyncio.TaskGroup() as tasks:
        polling = tasks.create_task(poll())
        try:
            yield
        finally:
            polling.cancel()
