"""What `Consume` runs, holds back, commits and gives up, on a broker in memory and a settle held by the test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.fakes.settle import HeldSettle
from tests.fakes.stream import FakeBroker, FakeStream
from tests.support.conditions import until
from worker.consume import Consume
from worker.errors import FatalError, UnavailableError
from worker.settings import IntakeSettings, KafkaSettings

FAST = {
    "poll_timeout_ms": 10,
    "commit_interval_ms": 10,
    "outage_backoff_ms": 10,
    "max_poll_interval_ms": 1_000,
    "rebalance_drain_ms": 5_000,
    "commit_timeout_ms": 1_000,
}

LARGE = 500
TWO_LARGE_RECORDS = 1_024
"""Bytes: with this bound the third waits."""


class Running:
    """One `Consume` at work, and what a test wants to look at."""

    def __init__(self, consume: Consume, stream: FakeStream, settle: HeldSettle, stop: asyncio.Event) -> None:
        self.consume = consume
        self.stream = stream
        self.settle = settle
        self.stop = stop
        self.ended: asyncio.Task[None] | None = None
        self.failure: Exception | None = None

    @property
    def done(self) -> bool:
        return self.ended is not None and self.ended.done()


@asynccontextmanager
async def consuming(
    broker: FakeBroker,
    *,
    settle: HeldSettle | None = None,
    records_max: int = 100,
    bytes_max: int = 2**20,
    drain_s: float = 5.0,
    intake_open: Callable[[], bool] = lambda: True,
    outage_probe_s: float = 1_000.0,
    until_drained: bool = False,
    fails: bool = False,
    **kafka: object,
) -> AsyncIterator[Running]:
    """Runs until the test leaves, by an exception only if the test says that it fails."""
    settle = settle or HeldSettle()
    stream = broker.member()
    consume = Consume(
        stream=stream,
        settle=settle,
        intake=IntakeSettings(records_max=records_max, bytes_max=bytes_max, outage_probe_s=outage_probe_s),
        kafka=KafkaSettings.model_validate(FAST | kafka),
        drain_s=drain_s,
        intake_open=intake_open,
    )
    running = Running(consume, stream, settle, asyncio.Event())
    try:
        async with asyncio.TaskGroup() as tasks:
            running.ended = tasks.create_task(consume.run(running.stop, until_drained=until_drained))
            yield running
            if not running.done:
                settle.let_everything_through()
            running.stop.set()
    except ExceptionGroup as group:
        if not fails:
            raise
        (running.failure,) = group.exceptions
    assert fails == (running.failure is not None)


def broker_with(*counts: int) -> FakeBroker:
    """One partition per count, with that many records."""
    broker = FakeBroker(partitions=len(counts))
    for partition, count in enumerate(counts):
        for _ in range(count):
            broker.append(partition)
    return broker


def broker_of_large_records(count: int) -> FakeBroker:
    broker = FakeBroker()
    for _ in range(count):
        broker.append(value=b"x" * LARGE)
    return broker


# How much runs at once


async def test_no_more_records_run_at_once_than_the_bound_allows() -> None:
    async with consuming(broker_with(30, 30), records_max=7) as running:
        await until(lambda: len(running.settle.running) == 7)
        while len(running.settle.settled) < 60:
            running.settle.release_all()
            await until(lambda: running.settle.running or len(running.settle.settled) == 60)

    assert running.settle.records_peak == 7


async def test_no_more_bytes_run_at_once_than_the_bound_allows() -> None:
    """librdkafka#1914: a bound on the count alone let large records fill the memory."""
    broker = FakeBroker()
    for size_bytes in (300, 600, 900, 200, 1_000, 100) * 5:
        broker.append(value=b"x" * size_bytes)
    async with consuming(broker, bytes_max=1_024) as running:
        while len(running.settle.settled) < 30:
            await until(lambda: running.settle.running)
            running.settle.release(next(iter(running.settle.running)))

            await until(lambda: running.settle.running or len(running.settle.settled) == 30)

    assert running.settle.bytes_peak <= 1_024


async def test_bytes_held_pass_the_bound_by_less_than_one_fetch() -> None:
    async with consuming(broker_of_large_records(100), records_max=4, bytes_max=TWO_LARGE_RECORDS) as running:
        await until(lambda: running.consume.state().records_waiting)
        state = running.consume.state()

        assert state.records_running == 2
        assert state.bytes_held <= TWO_LARGE_RECORDS + 4 * LARGE


async def test_a_waiting_record_starts_as_soon_as_it_fits() -> None:
    async with consuming(broker_of_large_records(6), bytes_max=TWO_LARGE_RECORDS) as running:
        await until(lambda: running.consume.state().records_waiting == 4)
        running.settle.release((0, 0))
        await until(lambda: (0, 2) in running.settle.started)

        assert running.consume.state().records_waiting == 3


async def test_a_full_partition_does_not_starve_the_others() -> None:
    async with consuming(broker_with(500, 1), records_max=10) as running:
        await until(lambda: (1, 0) in running.settle.started)

        assert len(running.settle.started) <= 10


async def test_polling_goes_on_paused_when_nothing_settles_for_long() -> None:
    """aiokafka#848: a slow record made its member miss the poll interval, leave, and start again for ever."""
    async with consuming(broker_with(5, 5), records_max=2) as running:
        await until(lambda: running.stream.fetches_while_paused >= 3)

        assert running.consume.state().paused
        assert len(running.settle.started) == 2
        running.settle.release_all()
        await until(lambda: not running.stream.paused)
        await until(lambda: len(running.settle.started) == 4)


# Outages


async def test_closed_intake_pauses_every_partition_while_polling_goes_on() -> None:
    is_open = True
    broker = broker_with(1, 1)
    async with consuming(broker, intake_open=lambda: is_open) as running:
        await until(lambda: len(running.settle.started) == 2)

        is_open = False
        await until(lambda: running.stream.fetches_while_paused >= 3)
        broker.append(0)
        await broker.announce()
        fetches = running.stream.fetches
        await until(lambda: running.stream.fetches >= fetches + 3)
        assert len(running.settle.started) == 2

        is_open = True
        await until(lambda: len(running.settle.started) == 3)
        assert running.stream.paused == set()


async def test_closed_intake_starts_nothing_that_waits() -> None:
    is_open = True
    async with consuming(
        broker_of_large_records(6), bytes_max=TWO_LARGE_RECORDS, intake_open=lambda: is_open
    ) as running:
        await until(lambda: running.consume.state().records_waiting == 4)
        is_open = False
        running.settle.release((0, 0))
        await until(lambda: running.stream.fetches_while_paused >= 2)
        assert running.settle.started == [(0, 0), (0, 1)]

        is_open = True
        await until(lambda: (0, 2) in running.settle.started)


async def test_a_long_outage_lets_one_record_in_now_and_then_so_that_a_lone_culprit_is_found() -> None:
    """A record whose own request always fails must not keep intake closed by itself for ever."""
    is_open = True
    broker = broker_with(1)
    async with consuming(broker, intake_open=lambda: is_open, outage_probe_s=0.05) as running:
        await until(lambda: running.settle.started == [(0, 0)])
        is_open = False
        for _ in range(3):
            broker.append(0)
        await broker.announce()
        await until(lambda: running.settle.started == [(0, 0), (0, 1)])
        fetches = running.stream.fetches_while_paused
        await until(lambda: running.stream.fetches_while_paused > fetches, timeout_s=10)
        await until(lambda: running.settle.started == [(0, 0), (0, 1), (0, 2)])


async def test_a_probe_takes_what_waits_before_it_reads() -> None:
    is_open = True
    async with consuming(
        broker_of_large_records(6), bytes_max=TWO_LARGE_RECORDS, intake_open=lambda: is_open, outage_probe_s=0.05
    ) as running:
        await until(lambda: running.consume.state().records_waiting == 4)
        is_open = False
        fetched = running.consume.state().records_fetched
        running.settle.release((0, 0))
        await until(lambda: running.settle.started == [(0, 0), (0, 1), (0, 2)])
        assert running.consume.state().records_fetched == fetched


async def test_a_rebalance_during_closed_intake_leaves_the_new_partitions_paused() -> None:
    broker = broker_with(3, 3)
    async with consuming(broker, intake_open=lambda: False) as running:
        await until(lambda: running.consume.state().paused)

        await broker.rebalance()

        fetches = running.stream.fetches
        await until(lambda: running.stream.fetches >= fetches + 3)
        assert running.stream.paused == set(broker.partitions)
        assert running.settle.started == []


async def test_a_broker_that_is_down_is_waited_for() -> None:
    broker = broker_with(2)
    async with consuming(broker) as running:
        await until(lambda: len(running.settle.started) == 2)
        broker.down = True
        fetches = running.stream.fetches
        await until(lambda: running.stream.fetches >= fetches + 3)
        running.settle.release_all()
        await until(lambda: running.consume.state().commits_failed >= 2)

        broker.down = False
        broker.append(0)
        await until(lambda: broker.committed == {broker.partitions[0]: 2})
        await until(lambda: (0, 2) in running.settle.started)


async def test_a_broker_that_is_down_at_the_start_is_waited_for() -> None:
    broker = broker_with(1)
    broker.down = True
    async with consuming(broker) as running:
        await until(lambda: running.stream.starts >= 3)
        broker.down = False
        await until(lambda: running.settle.started)


# Commits


async def test_records_settled_out_of_order_are_committed_in_order() -> None:
    broker = broker_with(4)
    (partition,) = broker.partitions
    async with consuming(broker) as running:
        await until(lambda: len(running.settle.running) == 4)
        running.settle.release((0, 1), (0, 3))
        await until(lambda: len(running.settle.settled) == 2)
        assert running.consume.state().partitions[partition].committable is None

        running.settle.release((0, 0))
        await until(lambda: broker.committed == {partition: 2})
        running.settle.release((0, 2))
        await until(lambda: broker.committed == {partition: 4})

    assert broker.commits == [{partition: 2}, {partition: 4}]


async def test_a_hole_in_the_log_is_committed_over() -> None:
    broker = FakeBroker()
    for offset in (3, 9, 40):
        broker.append(offset=offset)
    async with consuming(broker, settle=HeldSettle(open_from_the_start=True)):
        await until(lambda: broker.committed == {broker.partitions[0]: 41})


async def test_a_failed_commit_is_repeated_until_it_is_done() -> None:
    broker = broker_with(1)
    broker.commits_to_fail = 3
    async with consuming(broker, settle=HeldSettle(open_from_the_start=True)) as running:
        await until(lambda: broker.committed == {broker.partitions[0]: 1})

        assert running.consume.state().commits_failed == 3


async def test_nothing_is_committed_twice() -> None:
    broker = broker_with(1)
    async with consuming(broker, settle=HeldSettle(open_from_the_start=True)) as running:
        await until(lambda: broker.committed)
        fetches = running.stream.fetches
        await until(lambda: running.stream.fetches >= fetches + 5)

    assert len(broker.commits) == 1


# Failures


@pytest.mark.parametrize("error", [FatalError("the key is refused"), KeyError("a bug")])
async def test_what_settle_raises_stops_the_worker_with_that_offset_uncommitted(error: Exception) -> None:
    broker = broker_with(4)
    async with consuming(broker, fails=True) as running:
        await until(lambda: len(running.settle.running) == 4)
        running.settle.release((0, 0))
        running.settle.fail((0, 1), error)
        await until(lambda: running.consume.is_ending)
        running.settle.release((0, 2), (0, 3))

    assert running.failure is error
    assert broker.committed == {broker.partitions[0]: 1}
    assert running.settle.settled == [(0, 0), (0, 2), (0, 3)]
    assert running.stream.stopped


async def test_records_running_beside_a_failure_are_finished_and_committed() -> None:
    """Their calls are paid for."""
    broker = broker_with(1, 1)
    async with consuming(broker, fails=True) as running:
        await until(lambda: len(running.settle.running) == 2)
        running.settle.fail((0, 0), FatalError("stop"))
        await until(lambda: running.consume.is_ending)
        running.settle.release((1, 0))

    assert broker.committed == {broker.partitions[1]: 1}


async def test_nothing_is_started_after_a_failure() -> None:
    broker = broker_of_large_records(6)
    async with consuming(broker, bytes_max=TWO_LARGE_RECORDS, fails=True) as running:
        await until(lambda: running.consume.state().records_waiting)
        running.settle.fail((0, 0), FatalError("stop"))
        running.settle.release((0, 1))

    assert running.settle.started == [(0, 0), (0, 1)]


async def test_a_settle_that_ends_by_a_stray_cancellation_stops_the_worker() -> None:
    """faust#458: a record that ended without a word held back its partition's commits for ever."""
    async with consuming(broker_with(1), fails=True) as running:
        await until(lambda: running.settle.running)
        running.settle.take((0, 0)).cancel()

    assert "cancellation that nobody asked for" in str(running.failure)


async def test_an_offset_out_of_range_stops_the_worker() -> None:
    broker = broker_with(5)
    broker.committed[broker.partitions[0]] = 1
    broker.delete_before(broker.partitions[0], 3)
    async with consuming(broker, fails=True) as running:
        await until(lambda: running.done)

    assert isinstance(running.failure, FatalError)
    assert running.settle.started == []


async def test_what_a_rebalance_raises_stops_the_worker_though_the_client_swallows_it() -> None:
    broker = broker_with(1)
    async with consuming(broker, fails=True, commit_interval_ms=60_000) as running:
        await until(lambda: running.settle.running)
        running.settle.release_all()
        await until(lambda: running.settle.settled)
        broker.commit_failure = FatalError("commit refused for good")
        await broker.rebalance()

    assert running.failure is broker.commit_failure
    assert broker.listener_failures == []


# Rebalances


async def test_a_revoke_waits_for_running_records_and_commits_them() -> None:
    """aiokafka#1084, posthog#80897: the commit of a revoke must come after the drain, and before the fence."""
    broker = broker_with(2)
    (partition,) = broker.partitions
    async with consuming(broker, commit_interval_ms=60_000) as running, asyncio.TaskGroup() as tasks:
        await until(lambda: len(running.settle.running) == 2)
        rebalance = tasks.create_task(broker.rebalance())
        await until(lambda: not broker.stable.is_set())
        running.settle.release_all()
        await rebalance

        assert broker.committed == {partition: 2}
        assert running.settle.started == [(0, 0), (0, 1)]


async def test_a_revoke_with_nothing_running_does_not_wait() -> None:
    broker = broker_with(1)
    async with consuming(broker, settle=HeldSettle(open_from_the_start=True), rebalance_drain_ms=30_000):
        await until(lambda: broker.committed)
        async with asyncio.timeout(5):
            await broker.rebalance()


async def test_a_record_that_outlasts_the_drain_finishes_and_commits_nothing() -> None:
    """zio-kafka#590: the old owner went on committing."""
    broker = broker_with(1)
    (partition,) = broker.partitions
    async with consuming(broker, rebalance_drain_ms=0) as running:
        await until(lambda: running.settle.running)
        first = running.settle.take((0, 0))

        await broker.rebalance()
        await until(lambda: running.settle.running)
        first.set_result(None)
        await until(lambda: running.settle.settled)
        state = running.consume.state().partitions[partition]
        assert (state.committable, state.unfinished) == (None, 1)
        fetches = running.stream.fetches
        await until(lambda: running.stream.fetches >= fetches + 5)
        assert broker.commits == []

        running.settle.release_all()
        await until(lambda: broker.committed == {partition: 1})
    assert running.settle.started == [(0, 0), (0, 0)]


async def test_records_waiting_are_dropped_at_a_revoke_and_read_again() -> None:
    """alpakka-kafka#755: offsets were skipped when a partition came back to the same member."""
    broker = broker_of_large_records(6)
    async with consuming(broker, bytes_max=TWO_LARGE_RECORDS, rebalance_drain_ms=0) as running:
        await until(lambda: running.consume.state().records_waiting == 4)

        await broker.rebalance()
        running.settle.let_everything_through()
        await until(lambda: broker.committed == {broker.partitions[0]: 6})

    assert sorted(running.settle.settled) == [(0, offset) for offset in (0, 0, 1, 1, 2, 3, 4, 5)]


async def test_a_record_fetched_while_its_partition_is_given_up_is_not_started() -> None:
    """It is above what is committed, so whoever owns the partition next reads it."""
    broker = broker_with(1)
    (partition,) = broker.partitions
    async with consuming(broker) as running, asyncio.TaskGroup() as tasks:
        await until(lambda: running.settle.running)
        giving_up = tasks.create_task(running.consume.on_revoked([partition]))
        broker.append(0)
        await until(lambda: running.stream.positions[partition] == 2)
        running.settle.release((0, 0))
        await giving_up

        assert running.settle.started == [(0, 0)]
        assert broker.committed == {partition: 1}


async def test_a_second_member_takes_over_what_the_first_has_not_finished() -> None:
    broker = broker_with(3, 3)
    async with consuming(broker, rebalance_drain_ms=0) as first:
        await until(lambda: len(first.settle.running) == 6)
        first.settle.release((0, 0), (1, 0))
        await until(lambda: len(first.settle.settled) == 2)

        async with consuming(broker, settle=HeldSettle(open_from_the_start=True)) as second:
            await until(lambda: broker.committed.get(broker.partitions[1]) == 3)
            assert first.stream.assignment() == {broker.partitions[0]}

    assert second.settle.started == [(1, 1), (1, 2)]


async def test_a_commit_on_its_way_is_answered_before_partitions_are_given_up() -> None:
    """aiokafka#929: the assignment changed under a commit."""
    broker = broker_with(2)
    (partition,) = broker.partitions
    async with consuming(broker) as running, asyncio.TaskGroup() as tasks:
        await until(lambda: len(running.settle.running) == 2)
        broker.commits_may_end.clear()
        running.settle.release((0, 0))
        await until(lambda: broker.commits_on_their_way)
        running.settle.release((0, 1))
        rebalance = tasks.create_task(broker.rebalance())
        await until(lambda: len(running.settle.settled) == 2)
        assert not rebalance.done()

        broker.commits_may_end.set()
        await rebalance

    assert broker.commits == [{partition: 1}, {partition: 2}]
    assert broker.commits_on_their_way_peak == 1


# Ending


async def test_a_stop_finishes_what_runs_commits_it_and_leaves_the_group() -> None:
    """kafka-pixy#62: the last offset was not committed at the stop."""
    broker = broker_with(3)
    async with consuming(broker, commit_interval_ms=60_000) as running:
        await until(lambda: len(running.settle.running) == 3)
        running.stop.set()
        await until(lambda: running.consume.is_ending)
        broker.append(0)
        running.settle.release_all()

    assert broker.committed == {broker.partitions[0]: 3}
    assert running.stream.stopped
    assert running.settle.started == [(0, 0), (0, 1), (0, 2)]


async def test_a_stop_cancels_what_outlasts_its_budget_and_commits_the_rest() -> None:
    broker = broker_with(3)
    async with consuming(broker, drain_s=0, commit_interval_ms=60_000) as running:
        await until(lambda: len(running.settle.running) == 3)
        running.settle.release((0, 0))
        await until(lambda: running.settle.settled)
        running.stop.set()
        await until(lambda: running.done)

    assert sorted(running.settle.cancelled) == [(0, 1), (0, 2)]
    assert broker.committed == {broker.partitions[0]: 1}


async def test_a_stop_does_not_start_what_waits() -> None:
    broker = broker_of_large_records(6)
    async with consuming(broker, bytes_max=TWO_LARGE_RECORDS) as running:
        await until(lambda: running.consume.state().records_waiting)
        running.stop.set()
        await until(lambda: running.consume.is_ending)

    assert running.settle.started == [(0, 0), (0, 1)]
    assert broker.committed == {broker.partitions[0]: 2}


async def test_a_stop_while_the_broker_is_down_ends() -> None:
    """aiokafka#659: nothing ended while the brokers were down."""
    broker = broker_with(1)
    async with consuming(broker) as running:
        await until(lambda: running.settle.running)
        broker.down = True

    assert running.stream.stopped
    assert broker.committed == {}


async def test_a_stop_before_the_first_assignment_ends() -> None:
    broker = broker_with(1)
    broker.down = True
    async with consuming(broker) as running:
        pass

    assert running.settle.started == []


async def test_a_cancelled_run_leaves_nothing_running() -> None:
    broker = broker_of_large_records(6)
    async with consuming(broker, bytes_max=TWO_LARGE_RECORDS) as running:
        await until(lambda: running.consume.state().records_waiting)
        assert running.ended is not None
        running.ended.cancel()
        await until(lambda: running.done)

    assert running.settle.started == [(0, 0), (0, 1)]
    assert sorted(running.settle.cancelled) == [(0, 0), (0, 1)]
    assert running.stream.stopped
    assert broker.committed == {}


async def test_a_drained_topic_ends_the_run_with_everything_committed() -> None:
    broker = broker_with(5, 0, 2)
    broker.commits_to_fail = 2
    async with consuming(
        broker, settle=HeldSettle(open_from_the_start=True), until_drained=True, commit_interval_ms=60_000
    ) as running:
        await until(lambda: running.done)

    assert broker.committed == {broker.partitions[0]: 5, broker.partitions[2]: 2}


async def test_a_topic_is_not_drained_while_a_record_runs() -> None:
    broker = broker_with(1)
    async with consuming(broker, until_drained=True) as running:
        await until(lambda: running.settle.running)
        fetches = running.stream.fetches
        await until(lambda: running.stream.fetches >= fetches + 3)
        assert not running.done

        running.settle.release_all()
        await until(lambda: running.done)


# Looking in


async def test_the_state_shows_what_runs_waits_and_is_committed() -> None:
    now_s = 100.0
    broker = broker_with(3)
    (partition,) = broker.partitions
    stream, settle, stop = broker.member(), HeldSettle(), asyncio.Event()
    consume = Consume(
        stream=stream,
        settle=settle,
        intake=IntakeSettings(),
        kafka=KafkaSettings.model_validate(FAST),
        drain_s=0,
        monotonic=lambda: now_s,
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(consume.run(stop))
        await until(lambda: len(settle.running) == 3)
        settle.release((0, 0))
        await until(lambda: broker.committed)
        now_s = 107.5
        await until(lambda: consume.state().last_poll_age_s == 0)
        state = consume.state()
        stop.set()

    assert (state.records_running, state.records_waiting, state.records_fetched, state.records_settled) == (2, 0, 3, 1)
    assert state.oldest_unfinished_age_s == 7.5
    assert (state.partitions[partition].committed, state.partitions[partition].unfinished) == (1, 2)


async def test_a_redelivery_within_one_assignment_does_not_run_again() -> None:
    """faust#625: the same offset delivered twice after a reconnect."""
    broker = broker_with(3)
    (partition,) = broker.partitions
    async with consuming(broker) as running:
        await until(lambda: len(running.settle.running) == 3)
        running.settle.release((0, 0))
        running.stream.positions[partition] = 0
        fetches = running.stream.fetches
        await until(lambda: running.stream.fetches >= fetches + 3)

    assert running.settle.started == [(0, 0), (0, 1), (0, 2)]
    assert broker.committed == {partition: 3}


async def test_an_unavailable_commit_at_the_end_is_not_a_failure() -> None:
    broker = broker_with(1)
    broker.commit_failure = UnavailableError("rebalancing")
    async with consuming(broker, settle=HeldSettle(open_from_the_start=True)) as running:
        await until(lambda: running.settle.settled)

    assert broker.committed == {}
