"""Which fetched records run next, and how many of them, and of their bytes, there may be at once."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from worker.core.offsets import Ticket
from worker.core.records import Record, TopicPartition


@dataclass(frozen=True, slots=True)
class FetchedRecord:
    """A record with its place in the offset tracker and its size, counted once."""

    record: Record
    ticket: Ticket
    size_bytes: int


class Intake:
    """Fetched records, waiting or running; partitions take turns.

    Records held (waiting and running) never exceed `records_max`. Bytes running never exceed `bytes_max`, except for
    one larger record that runs alone. Bytes held exceed it by less than the fetch that passed it: nothing is wanted
    from then on.
    """

    def __init__(self, *, records_max: int, bytes_max: int) -> None:
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._waiting: dict[TopicPartition, deque[FetchedRecord]] = {}
        self._turns: deque[TopicPartition] = deque()
        self._running_on: Counter[tuple[TopicPartition, int]] = Counter()
        self.records_waiting = 0
        self.bytes_waiting = 0
        self.records_running = 0
        self.bytes_running = 0

    @property
    def records_held(self) -> int:
        return self.records_waiting + self.records_running

    @property
    def bytes_held(self) -> int:
        return self.bytes_waiting + self.bytes_running

    @property
    def records_wanted(self) -> int:
        """How many records may be fetched now."""
        return self._records_max - self.records_held if self.bytes_held < self._bytes_max else 0

    def add(self, fetched: FetchedRecord) -> None:
        topic_partition = fetched.ticket.topic_partition
        if topic_partition not in self._waiting:
            self._waiting[topic_partition] = deque()
            self._turns.append(topic_partition)
        self._waiting[topic_partition].append(fetched)
        self.records_waiting += 1
        self.bytes_waiting += fetched.size_bytes

    def take(self) -> FetchedRecord | None:
        """The next record to run, now counted as running; None when none waits or the next does not fit yet."""
        if not self._turns:
            return None
        topic_partition = self._turns[0]
        queue = self._waiting[topic_partition]
        fetched = queue[0]
        # Nothing smaller overtakes a record that does not fit, else large ones would starve.
        if self.records_running and self.bytes_running + fetched.size_bytes > self._bytes_max:
            return None
        queue.popleft()
        self._turns.rotate(-1)
        if not queue:
            self._forget(topic_partition)
        self.records_waiting -= 1
        self.bytes_waiting -= fetched.size_bytes
        self.records_running += 1
        self.bytes_running += fetched.size_bytes
        self._running_on[topic_partition, fetched.ticket.epoch] += 1
        return fetched

    def finish(self, fetched: FetchedRecord) -> None:
        """A record taken runs no more, whatever became of it."""
        self.records_running -= 1
        self.bytes_running -= fetched.size_bytes
        assignment = (fetched.ticket.topic_partition, fetched.ticket.epoch)
        self._running_on[assignment] -= 1
        if not self._running_on[assignment]:
            del self._running_on[assignment]

    def drop(self, partitions: Iterable[TopicPartition]) -> int:
        """Forget the waiting records of these partitions; how many there were."""
        dropped_before = self.records_waiting
        for topic_partition in partitions:
            queue = self._waiting.get(topic_partition)
            if queue is not None:
                self.records_waiting -= len(queue)
                self.bytes_waiting -= sum(fetched.size_bytes for fetched in queue)
                self._forget(topic_partition)
        return dropped_before - self.records_waiting

    def is_running_on(self, assignments: Iterable[tuple[TopicPartition, int]]) -> bool:
        """Whether a record of one of these partitions, fetched in the epoch beside it, is still running."""
        return any(assignment in self._running_on for assignment in assignments)

    def _forget(self, topic_partition: TopicPartition) -> None:
        del self._waiting[topic_partition]
        self._turns.remove(topic_partition)
