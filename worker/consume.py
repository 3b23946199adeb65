"""Which records run, how many (and how many bytes) at once, what may be committed, what a rebalance does."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from worker.core.intake import FetchedRecord, Intake
from worker.core.offsets import OffsetTracker, PartitionState
from worker.core.records import Record, TopicPartition
from worker.errors import UnavailableError
from worker.ports import RecordStream
from worker.settings import IntakeSettings, KafkaSettings
from worker.telemetry import log

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConsumeState:
    """A snapshot for metrics; ages in seconds."""

    records_running: int
    records_waiting: int
    bytes_held: int
    records_fetched: int
    records_settled: int
    commits_failed: int
    paused: bool
    last_poll_age_s: float
    oldest_unfinished_age_s: float
    partitions: Mapping[TopicPartition, PartitionState]


class Consume:
    """Runs the records of a stream through `settle`, and commits what has its outcome. One `run` per object.

    `settle` returns when the record's offset is safe to commit. Whatever it raises stops the worker with that offset
    uncommitted. While `intake_open` is false no further record is started or fetched, and polling goes on.
    """

    def __init__(
        self,
        *,
        stream: RecordStream,
        settle: Callable[[Record], Awaitable[object]],
        intake: IntakeSettings,
        kafka: KafkaSettings,
        drain_s: float,
        intake_open: Callable[[], bool] = lambda: True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._settle = settle
        self._kafka = kafka
        self._drain_s = drain_s
        self._intake_open = intake_open
        self._monotonic = monotonic
        self._intake = Intake(records_max=intake.records_max, bytes_max=intake.bytes_max)
        self._offsets = OffsetTracker()
        self._tasks = asyncio.TaskGroup()
        self._settling: set[asyncio.Task[None]] = set()
        self._leaving: frozenset[TopicPartition] = frozenset()
        self._commit_turn = asyncio.Lock()
        self._record_ended = asyncio.Event()
        self._ending = asyncio.Event()
        self._failure: Exception | None = None
        self._paused = False
        self._last_poll_s = monotonic()
        self._records_fetched = 0
        self._records_settled = 0
        self._commits_failed = 0
        self._commits_failed_in_a_row = 0

    async def run(self, stop: asyncio.Event, *, until_drained: bool = False) -> None:
        """Consume until `stop` is set, or until nothing is left to read; then drain, commit and leave the group.

        Records that outlast the drain are cancelled and stay uncommitted.

        Raises:
            Exception: the first thing that `settle`, the stream or a rebalance raised, after the same orderly end.
        """
        try:
            async with self._tasks:
                # Only cancellation comes out of these tasks: whatever else they raise is kept and ends the run.
                intake = [
                    self._tasks.create_task(self._end_when(stop)),
                    self._tasks.create_task(self._guarded(lambda: self._poll(until_drained=until_drained))),
                ]
                committing = self._tasks.create_task(self._guarded(self._commit_regularly))
                try:
                    await self._ending.wait()
                finally:
                    self._ending.set()
                for task in intake:
                    task.cancel()
                await self._drain()
                committing.cancel()
                await self._guarded(self._commit)
        finally:
            await self._stream.stop()
        if self._failure is not None:
            raise self._failure

    @property
    def is_ending(self) -> bool:
        """Nothing further is started; what runs is drained."""
        return self._ending.is_set()

    def state(self) -> ConsumeState:
        now_s = self._monotonic()
        oldest_s = self._offsets.oldest_unfinished_since_s()
        return ConsumeState(
            records_running=self._intake.records_running,
            records_waiting=self._intake.records_waiting,
            bytes_held=self._intake.bytes_held,
            records_fetched=self._records_fetched,
            records_settled=self._records_settled,
            commits_failed=self._commits_failed,
            paused=self._paused,
            last_poll_age_s=now_s - self._last_poll_s,
            oldest_unfinished_age_s=0.0 if oldest_s is None else now_s - oldest_s,
            partitions=self._offsets.states(),
        )

    # What the group tells us. aiokafka logs what a listener raises and goes on, so a failure is kept and ends the run.

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._offsets.assign(partitions)
        self._leaving -= frozenset(partitions)
        if self._paused:
            # A rebalance forgets which partitions were paused.
            self._stream.pause(partitions)
        log.info("partitions.assigned", partitions=_named(partitions))

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._guarded(lambda: self._give_up(partitions))

    async def _give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Stop intake, drain, commit, and only then fence: what still runs ends harmlessly and commits nothing."""
        self._leaving |= frozenset(partitions)
        dropped = self._intake.drop(partitions)
        assignments = self._offsets.epochs(partitions)
        drained = await self._await_records(
            lambda: not self._intake.is_running_on(assignments), self._kafka.rebalance_drain_ms / 1000
        )
        await self._commit()
        self._offsets.revoke(partitions)
        if assignments:
            log.info("partitions.revoked", partitions=_named(partitions), drained=drained, records_dropped=dropped)

    # Polling

    async def _poll(self, *, until_drained: bool) -> None:
        await self._through_outages(lambda: self._stream.start(self))
        while True:
            if not await self._may_fetch():
                continue
            records = await self._fetch(self._intake.records_wanted, self._kafka.poll_timeout_ms)
            self._accept(records)
            if until_drained and not records and await self._everything_committed():
                self._ending.set()
                return

    async def _may_fetch(self) -> bool:
        """Whether there is room now; if not, waits for some, at most one poll timeout, and keeps the member alive.

        Not polling holds the stream back by itself, and costs nothing. Pausing throws away what the client has
        fetched ahead, so partitions are paused only when intake is closed or the group would miss us.
        """
        if self._intake_open() and self._intake.records_wanted:
            self._resume()
            self._start_waiting()
            return True
        await self._await_records(
            lambda: self._intake_open() and self._intake.records_wanted > 0, self._kafka.poll_timeout_ms / 1000
        )
        idle_ms = (self._monotonic() - self._last_poll_s) * 1000
        if not self._intake_open() or idle_ms > self._kafka.max_poll_interval_ms / 3:
            self._pause()
            self._accept(await self._fetch(1, 0))
        return False

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._stream.pause(self._stream.assignment())

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._stream.resume(self._stream.assignment())

    async def _fetch(self, records_max: int, timeout_ms: int) -> Sequence[Record]:
        records = await self._through_outages(
            lambda: self._stream.fetch(records_max=records_max, timeout_ms=timeout_ms)
        )
        self._last_poll_s = self._monotonic()
        return records

    async def _through_outages(self, call: Callable[[], Awaitable[T]]) -> T:
        tries = 0
        while True:
            try:
                return await call()
            except UnavailableError as error:
                tries += 1
                log.warning("stream.unavailable", problem=str(error), tries=tries)
                await asyncio.sleep(error.retry_after_s or self._kafka.outage_backoff_ms / 1000)

    def _accept(self, records: Sequence[Record]) -> None:
        now_s = self._monotonic()
        for record in records:
            topic_partition = record.topic_partition
            if topic_partition in self._leaving:
                # Its next owner, ourselves perhaps, reads it again from the committed offset.
                continue
            ticket = self._offsets.add(topic_partition, record.offset, now_s)
            if ticket is not None:
                self._intake.add(FetchedRecord(record, ticket, record.size_bytes))
                self._records_fetched += 1
        self._start_waiting()

    async def _everything_committed(self) -> bool:
        if self._intake.records_held or any(lag != 0 for lag in self._stream.lag().values()):
            return False
        await self._commit()
        return not self._offsets.committable()

    # Records

    def _start_waiting(self) -> None:
        while not self._ending.is_set() and self._intake_open() and (fetched := self._intake.take()) is not None:
            task = self._tasks.create_task(self._settle_one(fetched))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def _settle_one(self, fetched: FetchedRecord) -> None:
        try:
            await self._settle(fetched.record)
        except Exception as error:  # noqa: BLE001  # every failure, a bug's too, stops the worker in order
            self._fail(error)
        except asyncio.CancelledError:
            if not _is_cancelled():
                # It would otherwise leave without a word, and hold back its partition's commits for ever.
                self._fail(RuntimeError("settle ended by a cancellation that nobody asked for"))
            raise
        else:
            self._offsets.complete(fetched.ticket)
            self._records_settled += 1
        finally:
            self._intake.finish(fetched)
            self._record_ended.set()
            self._start_waiting()

    async def _await_records(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Looks again whenever a record ends; whether the condition holds, at the latest after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._record_ended.clear()
                    await self._record_ended.wait()
        except TimeoutError:
            return condition()
        return True

    async def _drain(self) -> None:
        dropped = self._intake.drop(list(self._offsets.states()))
        drained = await self._await_records(lambda: not self._intake.records_running, self._drain_s)
        log.info("intake.stopped", drained=drained, records_dropped=dropped, records_running=len(self._settling))
        for task in self._settling:
            task.cancel()
        if self._settling:
            await asyncio.wait(self._settling)

    # Commits

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._kafka.commit_interval_ms / 1000)
            await self._commit()

    async def _commit(self) -> None:
        # One at a time: an older commit that is still on its way must not land on a newer one, or after a revoke.
        async with self._commit_turn:
            due = self._offsets.committable()
            if not due:
                return
            try:
                await self._stream.commit({topic_partition: offset for topic_partition, _, offset in due})
            except UnavailableError as error:
                self._commits_failed += 1
                self._commits_failed_in_a_row += 1
                log.warning("offsets.commit_failed", problem=str(error), in_a_row=self._commits_failed_in_a_row)
            else:
                self._offsets.mark_committed(due)
                self._commits_failed_in_a_row = 0

    # Ending

    async def _end_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._ending.set()

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # kept, ends the run, and is raised by it
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        log.error("consume.failed", exc_info=error)
        self._ending.set()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _named(partitions: Collection[TopicPartition]) -> list[str]:
    return [f"{topic}-{partition}" for topic, partition in sorted(partitions)]
