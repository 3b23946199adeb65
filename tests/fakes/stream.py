"""A broker with one consumer group in memory, its members as record streams, and a publisher; all state is visible."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from worker.core.records import OutboundMessage, Record, TopicPartition
from worker.errors import FatalError, UnavailableError
from worker.ports import RebalanceListener


class FakeBroker:
    """Logs, committed offsets and the members of one group; eager rebalances, as aiokafka's."""

    def __init__(self, topic: str = "answers", partitions: int = 1) -> None:
        self.partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self.logs: dict[TopicPartition, list[Record]] = {partition: [] for partition in self.partitions}
        self.log_starts: dict[TopicPartition, int] = dict.fromkeys(self.partitions, 0)
        self.committed: dict[TopicPartition, int] = {}
        self.commits: list[dict[TopicPartition, int]] = []
        self.members: list[FakeStream] = []
        self.listener_failures: list[Exception] = []
        self.commits_to_fail = 0
        self.commit_failure: Exception | None = None
        self.commits_on_their_way = 0
        self.commits_on_their_way_peak = 0
        self.commits_may_end = asyncio.Event()
        self.commits_may_end.set()
        self.down = False
        self.changed = asyncio.Condition()
        self.stable = asyncio.Event()
        self.stable.set()
        self._rebalance_turn = asyncio.Lock()

    def append(
        self, partition: int = 0, value: bytes | None = b"{}", *, offset: int | None = None, key: bytes | None = None
    ) -> Record:
        """Append a record; an `offset` past the end leaves a hole, as compaction does. Wakes nobody: see `announce`."""
        topic_partition = self.partitions[partition]
        record = Record(
            topic=topic_partition.topic,
            partition=partition,
            offset=self.end(topic_partition) if offset is None else offset,
            timestamp_ms=0,
            key=key,
            value=value,
        )
        assert record.offset >= self.end(topic_partition)
        self.logs[topic_partition].append(record)
        return record

    def end(self, topic_partition: TopicPartition) -> int:
        log = self.logs[topic_partition]
        return log[-1].offset + 1 if log else self.log_starts[topic_partition]

    async def announce(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    def delete_before(self, topic_partition: TopicPartition, offset: int) -> None:
        self.log_starts[topic_partition] = offset
        self.logs[topic_partition] = [record for record in self.logs[topic_partition] if record.offset >= offset]

    def member(self) -> "FakeStream":
        return FakeStream(self)

    async def rebalance(self) -> None:
        """Everything is revoked from every member, then dealt out again."""
        async with self._rebalance_turn:
            self.stable.clear()
            for member in list(self.members):
                await member.revoke_all()
            for number, member in enumerate(self.members):
                await member.take_over(self.partitions[number :: len(self.members)])
            self.stable.set()
        await self.announce()


class FakeStream:
    """One member. Fetches wait while the group rebalances, and what a listener raises is swallowed, as by aiokafka."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.paused: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}
        self.starts = 0
        self.fetches = 0
        self.fetches_while_paused = 0
        self.stopped = False
        self._known_ends: dict[TopicPartition, int] = {}
        self._listener: RebalanceListener | None = None
        self._turn = 0

    async def start(self, listener: RebalanceListener) -> None:
        self.starts += 1
        self._fail_when_down()
        self._listener = listener
        self.broker.members.append(self)
        await self.broker.rebalance()

    async def fetch(self, *, records_max: int, timeout_ms: int) -> Sequence[Record]:
        self.fetches += 1
        await self.broker.stable.wait()
        self._fail_when_down()
        if self.positions and self.paused >= self.positions.keys():
            self.fetches_while_paused += 1
        records = self._take(records_max)
        if records or not timeout_ms:
            return records
        try:
            async with asyncio.timeout(timeout_ms / 1000), self.broker.changed:
                await self.broker.changed.wait()
        except TimeoutError:
            pass
        await self.broker.stable.wait()
        return self._take(records_max)

    def _take(self, records_max: int) -> list[Record]:
        readable = sorted(self.positions.keys() - self.paused)
        self._turn += 1
        turns = readable[self._turn % len(readable) :] + readable[: self._turn % len(readable)] if readable else []
        share = max(1, records_max // len(turns)) if turns else 0
        taken: list[Record] = []
        for limit in (share, records_max):
            for topic_partition in turns:
                taken += self._read(topic_partition, min(limit, records_max - len(taken)))
        return taken

    def _read(self, topic_partition: TopicPartition, records_max: int) -> list[Record]:
        position = self.positions[topic_partition]
        if position < self.broker.log_starts[topic_partition]:
            raise FatalError(f"{topic_partition} offset {position} is out of range")
        self._known_ends[topic_partition] = self.broker.end(topic_partition)
        log = self.broker.logs[topic_partition]
        records = [record for record in log if record.offset >= position][:records_max]
        if records:
            self.positions[topic_partition] = records[-1].offset + 1
        return records

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.positions)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self.paused |= set(partitions) & self.positions.keys()

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self.paused -= set(partitions)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._fail_when_down()
        if self.broker.commits_to_fail:
            self.broker.commits_to_fail -= 1
            raise UnavailableError("the fake refuses this commit")
        if self.broker.commit_failure is not None:
            raise self.broker.commit_failure
        self.broker.commits_on_their_way += 1
        self.broker.commits_on_their_way_peak = max(
            self.broker.commits_on_their_way_peak, self.broker.commits_on_their_way
        )
        await self.broker.commits_may_end.wait()
        self.broker.commits_on_their_way -= 1
        kept = {partition: offset for partition, offset in offsets.items() if partition in self.positions}
        self.broker.committed.update(kept)
        self.broker.commits.append(kept)
        await self.broker.announce()

    def lag(self) -> Mapping[TopicPartition, int | None]:
        return {
            topic_partition: max(0, self._known_ends[topic_partition] - position)
            if topic_partition in self._known_ends
            else None
            for topic_partition, position in self.positions.items()
        }

    async def stop(self) -> None:
        self.stopped = True
        if self in self.broker.members:
            self.broker.members.remove(self)
            self.positions.clear()
            await self.broker.rebalance()

    async def revoke_all(self) -> None:
        assert self._listener is not None
        try:
            await self._listener.on_revoked(list(self.positions))
        except Exception as error:  # noqa: BLE001  # what aiokafka does with it
            self.broker.listener_failures.append(error)
        self.positions.clear()
        self.paused.clear()
        self._known_ends.clear()

    async def take_over(self, partitions: Sequence[TopicPartition]) -> None:
        assert self._listener is not None
        self.positions = {
            partition: self.broker.committed.get(partition, self.broker.log_starts[partition])
            for partition in partitions
        }
        try:
            await self._listener.on_assigned(partitions)
        except Exception as error:  # noqa: BLE001  # what aiokafka does with it
            self.broker.listener_failures.append(error)

    def _fail_when_down(self) -> None:
        if self.broker.down:
            raise UnavailableError("the fake broker is down")


class FakePublisher:
    """Keeps what it publishes, per topic; raises the failures it was given first."""

    def __init__(self) -> None:
        self.published: dict[str, list[OutboundMessage]] = defaultdict(list)
        self.failures: list[Exception] = []

    async def publish(self, messages: Sequence[OutboundMessage]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        for message in messages:
            self.published[message.topic].append(message)
