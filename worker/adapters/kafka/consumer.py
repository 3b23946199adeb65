"""The answers topic as a consumer group's member reads it: `RecordStream` over aiokafka."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord
from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.errors import IllegalStateError, KafkaError, NoOffsetForPartitionError, UnknownTopicOrPartitionError

from worker.adapters.kafka.background import close_consumer, keep_alive, require_topic
from worker.adapters.kafka.connection import connection_options, start_client, translated_errors
from worker.adapters.kafka.header_names import read_on
from worker.core.records import Record, TopicPartition
from worker.errors import FatalError, UnavailableError
from worker.ports import RebalanceListener
from worker.settings import KafkaSettings
from worker.telemetry import log

Batch = Sequence[ConsumerRecord]


class KafkaRecordStream:
    """One member of the group. May be started again after a start that failed, and after `stop`.

    A cancelled `fetch` may have read records that nobody got: fetch no more after it.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topic = settings.answers_topic
        self._client: AIOKafkaConsumer | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._error: KafkaError | UnicodeDecodeError | None = None
        self._turn = 0

    async def start(self, listener: RebalanceListener) -> None:
        """Join the group; returns with a first assignment.

        Raises:
            UnavailableError: no broker, or no assignment within a request and a rebalance timeout.
            FatalError: no such topic, or access is refused.
        """
        settings = self._settings
        consumer = self._client = AIOKafkaConsumer(
            **connection_options(settings),
            group_id=settings.group_id,
            group_instance_id=settings.group_instance_id,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            # Unset, it is the session timeout: too short for a drain.
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            fetch_max_wait_ms=settings.fetch_max_wait_ms,
            fetch_max_bytes=settings.fetch_max_bytes,
            max_partition_fetch_bytes=settings.max_partition_fetch_bytes,
            check_crcs=True,
            isolation_level="read_committed",
            enable_auto_commit=False,
            # "earliest" would also jump, silently, over what retention deleted before it was read.
            auto_offset_reset="none",
        )
        consumer.subscribe([self._topic], listener=_Listener(listener, self._positions))
        joining_s = (settings.request_timeout_ms + settings.rebalance_timeout_ms) / 1000
        try:
            with translated_errors(f"joining group {settings.group_id}"):
                async with asyncio.timeout(joining_s):
                    await self._join(consumer)
        except BaseException:
            await self.stop()
            raise
        log.info("group.joined", group=settings.group_id, topic=self._topic, instance=settings.group_instance_id)

    async def _join(self, consumer: AIOKafkaConsumer) -> None:
        try:
            await start_client(consumer, self._settings)
        except UnknownTopicOrPartitionError as error:
            raise FatalError(f"topic {self._topic} does not exist: run `attribution-worker topics`") from error

    async def fetch(self, *, records_max: int, timeout_ms: int) -> Sequence[Record]:
        consumer = self._consumer
        with translated_errors(f"reading {self._topic}"):
            keep_alive(consumer)
            await require_topic(consumer, self._topic)
            await self._face_error(consumer)
            await self._learn_positions(consumer)
            # From the first record taken to the return nothing is awaited that could wait: no rebalance comes between.
            batches = await self._take_turns(consumer, records_max)
            if not batches and self._error is None and timeout_ms:
                batches = await self._take(consumer, (), records_max, timeout_ms)
            if not batches:
                await self._face_error(consumer)
        records = [_copied(record) for batch in batches for record in batch]
        for record in records:
            self._positions[record.topic_partition] = record.offset + 1
        return records

    async def _take_turns(self, consumer: AIOKafkaConsumer, records_max: int) -> list[Batch]:
        """What was fetched ahead, an equal share of each partition first: aiokafka would empty one after the other."""
        ready = sorted(consumer.assignment() - consumer.paused())
        if not ready:
            # Nothing to read; the call tells the group that we live, and tells us of errors.
            return await self._take(consumer, (), 1, 0)
        self._turn = (self._turn + 1) % len(ready)
        turns = ready[self._turn :] + ready[: self._turn]
        taken: list[Batch] = []
        left = records_max
        for limit in (max(1, records_max // len(ready)), records_max):
            for partition in turns:
                if not left or self._error is not None:
                    return taken
                batches = await self._take(consumer, (partition,), min(limit, left), 0)
                taken += batches
                left -= sum(map(len, batches))
        return taken

    async def _take(
        self, consumer: AIOKafkaConsumer, partitions: Sequence[KafkaTopicPartition], records_max: int, timeout_ms: int
    ) -> list[Batch]:
        """Keeps the error back: records taken before it are gone from the client, and must be handed out first."""
        try:
            taken = await consumer.getmany(*partitions, timeout_ms=timeout_ms, max_records=records_max)
        except (KafkaError, UnicodeDecodeError) as error:
            self._error = error
            return []
        return list(taken.values())

    async def _face_error(self, consumer: AIOKafkaConsumer) -> None:
        error, self._error = self._error, None
        if isinstance(error, NoOffsetForPartitionError):
            await self._start_at_earliest(consumer, error.args[0])
        elif isinstance(error, UnicodeDecodeError):
            self._error = error
            await self._read_any_names(consumer)
            self._error = None
        elif error is not None:
            raise error

    async def _start_at_earliest(self, consumer: AIOKafkaConsumer, partition: KafkaTopicPartition) -> None:
        """Only where the group has committed nothing; everything else out of range is an error."""
        try:
            await consumer.seek_to_beginning(partition)
        except IllegalStateError:
            # It was revoked meanwhile: its next owner comes to the same point.
            return
        log.info("partition.started_at_earliest", topic=partition.topic, partition=partition.partition)

    async def _read_any_names(self, consumer: AIOKafkaConsumer) -> None:
        try:
            await read_on(consumer, self._positions)
        except IllegalStateError:
            # A partition was revoked meanwhile: all of them start anew.
            return

    async def _learn_positions(self, consumer: AIOKafkaConsumer) -> None:
        """Positions move past control records and compacted ones too, which no record shows."""
        for partition in consumer.assignment():
            # A high watermark means that a fetch was answered, so that the position is known and is not waited for.
            if consumer.highwater(partition) is not None:
                self._positions[TopicPartition(*partition)] = await consumer.position(partition)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(*partition) for partition in self._consumer.assignment())

    # A rebalance may still come to an end while the stream is being stopped: there is nothing to pause then.

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        if self._client is not None:
            self._client.pause(*self._assigned(partitions))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        if self._client is not None:
            self._client.resume(*self._assigned(partitions))

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        consumer = self._consumer
        # aiokafka refuses all of them for one partition that is no longer assigned; nothing is awaited in between.
        due = {partition: offsets[TopicPartition(*partition)] for partition in self._assigned(offsets)}
        if not due:
            return
        with translated_errors(f"committing offsets of {self._topic}"):
            async with asyncio.timeout(self._settings.commit_timeout_ms / 1000):
                await consumer.commit(due)

    def lag(self) -> Mapping[TopicPartition, int | None]:
        return {TopicPartition(*partition): self._lag_of(partition) for partition in self._consumer.assignment()}

    def _lag_of(self, partition: KafkaTopicPartition) -> int | None:
        end: int | None = self._consumer.highwater(partition)
        position = self._positions.get(TopicPartition(*partition))
        return None if end is None or position is None else max(0, end - position)

    async def stop(self) -> None:
        """Leave the group (a static member stays in it). Ends also when the broker is gone."""
        consumer, self._client = self._client, None
        self._positions.clear()
        self._error = None
        if consumer is not None:
            await close_consumer(consumer)

    @property
    def _consumer(self) -> AIOKafkaConsumer:
        if self._client is None:
            raise UnavailableError("the record stream is not started")
        return self._client

    def _assigned(self, partitions: Iterable[TopicPartition]) -> list[KafkaTopicPartition]:
        assigned = self._consumer.assignment()
        return [kafka for partition in partitions if (kafka := KafkaTopicPartition(*partition)) in assigned]


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka ships no types
    """Forwards to ours, in our types."""

    def __init__(self, listener: RebalanceListener, positions: dict[TopicPartition, int]) -> None:
        self._listener = listener
        self._positions = positions

    async def on_partitions_revoked(self, revoked: Collection[KafkaTopicPartition]) -> None:
        await self._listener.on_revoked([TopicPartition(*partition) for partition in revoked])
        self._positions.clear()

    async def on_partitions_assigned(self, assigned: Collection[KafkaTopicPartition]) -> None:
        await self._listener.on_assigned([TopicPartition(*partition) for partition in assigned])


def _copied(record: ConsumerRecord) -> Record:
    return Record(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )
