"""What may be committed: per assigned partition, the contiguous completed prefix in fetched order."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from worker.core.records import TopicPartition


class Ticket(NamedTuple):
    """One record being tracked; it completes nothing once its partition is in another epoch."""

    topic_partition: TopicPartition
    epoch: int
    offset: int


class Committable(NamedTuple):
    """The next offset to read of one partition, as one epoch found it."""

    topic_partition: TopicPartition
    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What is known of one assigned partition; an offset of None is not known yet.

    `fetched` and `completed` are the highest such records, `committable` and `committed` the next ones to read.
    """

    epoch: int
    fetched: int | None
    unfinished: int
    completed: int | None
    committable: int | None
    committed: int | None
    oldest_unfinished_since_s: float | None


class PartitionOffsets:
    """One partition during one assignment. Offsets arrive ascending, with holes where the log has none."""

    __slots__ = (
        "_committable",
        "_committed",
        "_completed",
        "_fetched",
        "_finished",
        "_first",
        "_unfinished",
        "_window",
        "epoch",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        # Everything fetched from the first unfinished record on, so that its head is the oldest unfinished one.
        self._window: deque[tuple[int, float]] = deque()
        self._unfinished: set[int] = set()
        self._finished: set[int] = set()
        self._first: int | None = None
        self._fetched: int | None = None
        self._completed: int | None = None
        self._committable: int | None = None
        self._committed: int | None = None

    def add(self, offset: int, now_s: float) -> bool:
        """Whether the record is new; a redelivery is not, finished or not.

        Raises:
            ValueError: the offset was passed over before: the log is not read in order, and commits could lose it.
        """
        if self._fetched is not None and offset <= self._fetched:
            if self._was_added(offset):
                return False
            raise ValueError(f"offset {offset} arrived after {self._fetched} without having been fetched before")
        if self._first is None:
            self._first = offset
        self._fetched = offset
        self._window.append((offset, now_s))
        self._unfinished.add(offset)
        return True

    def complete(self, offset: int) -> None:
        """Completing again, or what was never added, changes nothing."""
        if offset not in self._unfinished:
            return
        self._unfinished.remove(offset)
        self._finished.add(offset)
        if self._completed is None or offset > self._completed:
            self._completed = offset
        while self._window and self._window[0][0] in self._finished:
            passed, _ = self._window.popleft()
            self._finished.remove(passed)
            self._committable = passed + 1

    @property
    def due(self) -> int | None:
        """The offset to commit; None when nothing completed since the last commit."""
        return None if self._committable == self._committed else self._committable

    def mark_committed(self, offset: int) -> None:
        """A late answer to an earlier commit never moves it back."""
        self._committed = offset if self._committed is None else max(self._committed, offset)

    @property
    def oldest_unfinished_since_s(self) -> float | None:
        return self._window[0][1] if self._window else None

    @property
    def state(self) -> PartitionState:
        return PartitionState(
            epoch=self.epoch,
            fetched=self._fetched,
            unfinished=len(self._unfinished),
            completed=self._completed,
            committable=self._committable,
            committed=self._committed,
            oldest_unfinished_since_s=self.oldest_unfinished_since_s,
        )

    def _was_added(self, offset: int) -> bool:
        if offset in self._unfinished or offset in self._finished:
            return True
        # Offsets behind the prefix are forgotten one by one; all between its ends count as seen.
        return self._first is not None and self._committable is not None and self._first <= offset < self._committable


class OffsetTracker:
    """All assigned partitions. Every assignment, to oneself too, starts a new epoch that knows nothing of the last.

    Times are monotonic seconds given by the caller, only ever handed back.
    """

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionOffsets] = {}
        self._epoch = 0

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._epoch += 1
        for topic_partition in partitions:
            self._partitions[topic_partition] = PartitionOffsets(self._epoch)

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """From here on these partitions have nothing to commit, whatever still completes."""
        for topic_partition in partitions:
            self._partitions.pop(topic_partition, None)

    def epochs(self, partitions: Iterable[TopicPartition]) -> frozenset[tuple[TopicPartition, int]]:
        """Those of the partitions that are assigned, each with its epoch."""
        return frozenset(
            (topic_partition, self._partitions[topic_partition].epoch)
            for topic_partition in partitions
            if topic_partition in self._partitions
        )

    def add(self, topic_partition: TopicPartition, offset: int, now_s: float) -> Ticket | None:
        """Track a fetched record; None for a redelivery within the epoch, which must not run again.

        Raises:
            KeyError: the partition is not assigned.
            ValueError: the partition is not read in order.
        """
        partition = self._partitions[topic_partition]
        return Ticket(topic_partition, partition.epoch, offset) if partition.add(offset, now_s) else None

    def complete(self, ticket: Ticket) -> None:
        partition = self._partitions.get(ticket.topic_partition)
        if partition is not None and partition.epoch == ticket.epoch:
            partition.complete(ticket.offset)

    def committable(self) -> list[Committable]:
        """What is due; the same again until `mark_committed`, so that a failed commit is repeated."""
        return [
            Committable(topic_partition, partition.epoch, due)
            for topic_partition, partition in self._partitions.items()
            if (due := partition.due) is not None
        ]

    def mark_committed(self, committed: Iterable[Committable]) -> None:
        for topic_partition, epoch, offset in committed:
            partition = self._partitions.get(topic_partition)
            if partition is not None and partition.epoch == epoch:
                partition.mark_committed(offset)

    def oldest_unfinished_since_s(self) -> float | None:
        """When the oldest record without an outcome was fetched; None when every record has one."""
        since = [
            oldest
            for partition in self._partitions.values()
            if (oldest := partition.oldest_unfinished_since_s) is not None
        ]
        return min(since, default=None)

    def states(self) -> Mapping[TopicPartition, PartitionState]:
        return {topic_partition: partition.state for topic_partition, partition in self._partitions.items()}
