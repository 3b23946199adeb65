"""Which records run, how many (and how many bytes) at once, and what a rebalance or a stop does."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence

from worker.consume.commits import Commits
from worker.consume.reader import Reader
from worker.consume.state import ConsumeState
from worker.core.intake import FetchedRecord, Intake
from worker.core.offsets import OffsetTracker
from worker.core.records import Record, TopicPartition
from worker.ports import RecordStream
from worker.settings import IntakeSettings, KafkaSettings
from worker.telemetry import log


class Consume:
    """Runs the records of a stream through `settle`, and commits what has its outcome. One `run` per object.

    `settle` returns when the record's offset is safe to commit. Whatever it raises stops the worker with that offset
    uncommitted. While `intake_open` is false polling goes on, and one record every `intake.outage_probe_s` is started.
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
        self._outage_probe_s = intake.outage_probe_s
        self._closed_since_s: float | None = None
        self._offsets = OffsetTracker()
        self._reader = Reader(stream, kafka, monotonic)
        self._commits = Commits(stream, self._offsets, interval_ms=kafka.commit_interval_ms)
        self._tasks = asyncio.TaskGroup()
        self._settling: set[asyncio.Task[None]] = set()
        self._leaving: frozenset[TopicPartition] = frozenset()
        self._record_ended = asyncio.Event()
        self._ending = asyncio.Event()
        self._failure: Exception | None = None
        self._rebalances = 0
        self._records_fetched = 0
        self._records_settled = 0

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
                    self._tasks.create_task(self._guarded(lambda: self._take_in(until_drained=until_drained))),
                ]
                committing = self._tasks.create_task(self._guarded(self._commits.commit_regularly))
                try:
                    await self._ending.wait()
                finally:
                    self._ending.set()
                for task in intake:
                    task.cancel()
                await self._drain()
                committing.cancel()
                await self._guarded(self._commits.commit)
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
            commits_failed=self._commits.failed,
            rebalances=self._rebalances,
            paused=self._reader.paused,
            ending=self.is_ending,
            last_poll_age_s=self._reader.last_poll_age_s,
            loop_age_s=self._reader.loop_age_s,
            starved_s=self._reader.starved_s,
            oldest_unfinished_age_s=0.0 if oldest_s is None else now_s - oldest_s,
            partitions=self._offsets.states(),
            lag=self._reader.lag(),
        )

    # What the group tells us. aiokafka logs what a listener raises and goes on, so a failure is kept and ends the run.

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._rebalances += 1
        self._offsets.assign(partitions)
        self._leaving -= frozenset(partitions)
        self._reader.on_assigned(partitions)
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
        await self._commits.commit()
        self._offsets.revoke(partitions)
        if assignments:
            log.info("partitions.revoked", partitions=_named(partitions), drained=drained, records_dropped=dropped)

    # Intake

    async def _take_in(self, *, until_drained: bool) -> None:
        await self._reader.start(self)
        while True:
            self._reader.turned()
            if await self._await_records(self._has_room, self._kafka.poll_timeout_ms / 1000):
                self._closed_since_s = None
                self._start_waiting()
                records = await self._reader.read(self._intake.records_wanted)
                self._accept(records)
                if until_drained and not records and await self._everything_committed():
                    self._ending.set()
                    return
            elif self._outage_probe_is_due():
                await self._let_one_in()
            elif self._reader.must_poll or not self._intake_open():
                self._accept(await self._reader.poll_paused())

    def _outage_probe_is_due(self) -> bool:
        if self._intake_open():
            self._closed_since_s = None
            return False
        now_s = self._monotonic()
        if self._closed_since_s is None:
            self._closed_since_s = now_s
        if now_s - self._closed_since_s < self._outage_probe_s:
            return False
        self._closed_since_s = now_s
        return True

    async def _let_one_in(self) -> None:
        """One record although intake is closed.

        Where a single record's own request keeps failing, nothing else could ever show that the provider is well.
        """
        if not self._intake.records_waiting and self._intake.records_wanted:
            self._accept(await self._reader.read(1))
        if (fetched := self._intake.take()) is not None:
            self._run_beside(fetched)

    def _has_room(self) -> bool:
        return self._intake_open() and self._intake.records_wanted > 0

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
        if self._intake.records_held or not self._reader.nothing_left():
            return False
        await self._commits.commit()
        return not self._offsets.committable()

    # Records

    def _start_waiting(self) -> None:
        while not self._ending.is_set() and self._intake_open() and (fetched := self._intake.take()) is not None:
            self._run_beside(fetched)

    def _run_beside(self, fetched: FetchedRecord) -> None:
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
