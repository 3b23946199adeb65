"""Whether a worker is alive and ready: its own consumer, on a broker in memory, and a database that a test plays."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal

import pytest

from tests.fakes.settle import HeldSettle
from tests.fakes.stream import FakeBroker, FakeStream
from tests.support.conditions import until
from tests.support.http import request
from worker.adapters.postgres.limits import RecentOutcomes
from worker.adapters.postgres.watch import Seen
from worker.app.observing import Observing
from worker.consume import Consume
from worker.core.budget import Period
from worker.core.records import Record
from worker.errors import FatalError, UnavailableError
from worker.settings import HttpSettings, IntakeSettings, KafkaSettings
from worker.telemetry import Telemetry

SEEN = Seen(
    outbox_pending=7,
    outbox_age_s=2.5,
    recent=RecentOutcomes(consecutive=3, dead_letters=5, outcomes=20),
    stopped_by=None,
    budget_left_usd={Period.HOUR: Decimal("1.25")},
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Tables:
    """What the next look sees."""

    def __init__(self) -> None:
        self.seen: Seen | Exception = SEEN
        self.looks = 0

    async def look(self) -> Seen:
        self.looks += 1
        if isinstance(self.seen, Exception):
            raise self.seen
        return self.seen


class SilentStream(FakeStream):
    """Gives nothing, although there is something to read, for as long as it is `silent`."""

    silent = False

    async def fetch(self, *, records_max: int, timeout_ms: int) -> list[Record]:
        records = await super().fetch(records_max=0 if self.silent else records_max, timeout_ms=0)
        if not records:
            await asyncio.sleep(0.001)
        return list(records)


class Bench:
    def __init__(self, broker: FakeBroker, *, records_max: int = 100) -> None:
        self.broker, self.clock, self.tables = broker, Clock(), Tables()
        self.stream, self.settle, self.telemetry = SilentStream(broker), HeldSettle(), Telemetry()
        self.waiting = 0
        self.stop = asyncio.Event()
        self.consume = Consume(
            stream=self.stream,
            settle=self.settle,
            intake=IntakeSettings(records_max=records_max),
            kafka=KafkaSettings(poll_timeout_ms=10, commit_interval_ms=10, outage_backoff_ms=10),
            drain_s=5.0,
            intake_open=lambda: self.waiting == 0,
            monotonic=self.clock,
        )
        self.observing = Observing(
            HttpSettings(enabled=True, port=0),
            state=self.consume.state,
            waiting=lambda: self.waiting,
            look=self.tables.look,
            retries={"40P01": 2},
            version="1.2.3",
            telemetry=self.telemetry,
            monotonic=self.clock,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.consume.run(self.stop))
            await until(lambda: self.consume.state().rebalances)
            yield
            self.settle.let_everything_through()
            self.stop.set()

    async def pass_s(self, seconds: float) -> None:
        """Time passes, and the poll loop turns after it."""
        self.clock.now_s += seconds
        await until(lambda: self.consume.state().loop_age_s == 0)

    async def starve(self) -> None:
        """There is a record to read, and reading gives nothing."""
        self.stream.silent = True
        self.broker.append()
        await until(lambda: any(self.stream.lag().values()))
        fetches = self.stream.fetches
        await until(lambda: self.stream.fetches > fetches + 1)
        self.clock.now_s += 1
        assert self.consume.state().starved_s == 1

    def failing(self, page: str) -> list[str]:
        checks = self.observing.alive() if page == "alive" else self.observing.ready()
        return [check.name for check in checks if not check.holds]

    def value(self, series: str, **labels: str) -> float | None:
        return self.telemetry.registry.get_sample_value(series, labels)


def broker_with(count: int) -> FakeBroker:
    broker = FakeBroker()
    for _ in range(count):
        broker.append()
    return broker


async def test_a_worker_is_alive_from_the_start_and_ready_once_it_is_in_its_group_and_reaches_the_database() -> None:
    bench = Bench(broker_with(0))
    assert bench.failing("alive") == []
    assert bench.failing("ready") == ["group", "database"]
    async with bench.running():
        assert bench.failing("ready") == ["database"]
        await bench.observing.look()
        assert bench.failing("ready") == []
        bench.stop.set()
        await until(lambda: bench.consume.is_ending)
        assert bench.failing("ready") == ["intake"], "ending is not ready"
        assert bench.failing("alive") == [], "and nothing to restart"


async def test_a_worker_that_drains_is_alive_however_long_its_records_take() -> None:
    bench = Bench(broker_with(1))
    async with bench.running():
        await until(lambda: len(bench.settle.running) == 1)
        await bench.starve()
        bench.stop.set()
        await until(lambda: bench.consume.is_ending)
        bench.clock.now_s += 4.9 + 10_000
        assert bench.consume.state().loop_age_s > 10_000
        assert bench.failing("alive") == []


async def test_a_worker_that_may_not_read_does_not_starve() -> None:
    bench = Bench(broker_with(1))
    async with bench.running():
        await until(lambda: len(bench.settle.running) == 1)
        await bench.starve()
        bench.waiting = 1
        await until(lambda: bench.consume.state().paused)
        await bench.pass_s(10_000)
        assert bench.failing("alive") == []


async def test_a_poll_loop_that_stands_still_is_not_alive() -> None:
    bench = Bench(broker_with(0))
    async with bench.running():
        bench.broker.stable.clear()  # a fetch that never returns
        await until(lambda: bench.stream.fetches > 1)
        bench.clock.now_s += 119
        assert bench.failing("alive") == []
        bench.clock.now_s += 2
        assert bench.failing("alive") == ["poll_loop"]
        bench.broker.stable.set()
        await bench.pass_s(1)
        assert bench.failing("alive") == []


async def test_a_worker_that_reads_nothing_although_there_are_records_is_not_alive() -> None:
    """The group is joined, the loop turns, the lag stays: nothing but a restart has ever helped (aiokafka#983)."""
    bench = Bench(broker_with(3))
    async with bench.running():
        await until(lambda: len(bench.settle.running) == 3)
        await bench.starve()
        await bench.pass_s(299)
        assert bench.failing("alive") == []
        await bench.pass_s(10)
        assert bench.failing("alive") == ["reading"]
        bench.stream.silent = False
        await until(lambda: len(bench.settle.running) == 4)
        assert bench.failing("alive") == []


async def test_a_worker_whose_records_take_long_is_alive() -> None:
    """Nothing is read for want of room, which is no reason to throw work away."""
    bench = Bench(broker_with(10), records_max=2)
    async with bench.running():
        await until(lambda: len(bench.settle.running) == 2)
        await bench.pass_s(10_000)
        assert bench.failing("alive") == []


async def test_an_outage_is_waited_for_alive() -> None:
    bench = Bench(broker_with(1))
    async with bench.running():
        bench.waiting = 1
        await bench.pass_s(10_000)
        assert bench.failing("alive") == []
        assert bench.value("attribution_worker_state", state="waiting") == 1
        bench.waiting = 0
        bench.broker.down = True
        await bench.pass_s(10_000)
        assert bench.failing("alive") == []
        bench.broker.down = False


async def test_a_spare_worker_without_partitions_is_ready() -> None:
    broker = FakeBroker(partitions=1)
    first, spare = Bench(broker), Bench(broker)
    async with first.running(), spare.running():
        await spare.observing.look()
        assert len(spare.consume.state().partitions) == 0
        assert spare.failing("ready") == []


@pytest.mark.parametrize("problem", [UnavailableError("PostgreSQL: gone"), FatalError("PostgreSQL refused")])
async def test_a_database_that_cannot_be_reached_makes_not_ready_and_a_success_ready_again(problem: Exception) -> None:
    bench = Bench(broker_with(0))
    async with bench.running():
        await bench.observing.look()
        bench.tables.seen = problem
        await bench.observing.look()
        assert bench.failing("ready") == ["database"]
        assert bench.value("attribution_database_reachable") == 0
        bench.tables.seen = SEEN
        await bench.observing.look()
        assert bench.failing("ready") == []
        assert bench.value("attribution_database_reachable") == 1


async def test_an_old_look_is_not_believed() -> None:
    bench = Bench(broker_with(0))
    async with bench.running():
        await bench.observing.look()
        bench.clock.now_s += 61
        assert bench.failing("ready") == ["database"]


async def test_reached_dead_letter_limits_make_not_ready_and_say_what_to_do() -> None:
    bench = Bench(broker_with(0))
    async with bench.running():
        bench.tables.seen = Seen(7, 2.5, SEEN.recent, "the limit is reached: run `attribution-worker resume`", {})
        await bench.observing.look()
        [failed] = [check for check in bench.observing.ready() if not check.holds]
    assert (failed.name, "resume" in failed.told) == ("dead_letter_limits", True)


async def test_the_database_is_looked_at_by_the_clock_however_many_ask() -> None:
    bench = Bench(broker_with(0))
    async with bench.running(), bench.observing.serving():
        assert bench.observing.port is not None
        await bench.observing.look()
        for _ in range(20):
            assert (await request(bench.observing.port, "/readyz")).status == 200
            assert (await request(bench.observing.port, "/metrics")).status == 200
    assert bench.tables.looks == 1


async def test_metrics_tell_where_partitions_records_and_tables_stand() -> None:
    bench = Bench(broker_with(5))
    async with bench.running():
        await until(lambda: len(bench.settle.running) == 5)
        bench.settle.release((0, 3), (0, 0), (0, 1))
        await until(lambda: bench.broker.committed == {bench.broker.partitions[0]: 2})
        await bench.observing.look()
        bench.clock.now_s += 4
        assert {
            position: bench.value("attribution_partition_offset", partition="0", position=position)
            for position in ("seen", "completed", "committable", "committed")
        } == {"seen": 5, "completed": 4, "committable": 2, "committed": 2}
        assert bench.value("attribution_partition_lag_records", partition="0") == 2
        assert bench.value("attribution_oldest_unfinished_seconds") == 4
        assert bench.value("attribution_in_flight_records", phase="running") == 2
        assert bench.value("attribution_records_fetched_total") == 5
        assert bench.value("attribution_rebalances_total") == 1
        assert bench.value("attribution_worker_state", state="running") == 1
        assert bench.value("attribution_build", version="1.2.3") == 1
        assert bench.value("attribution_outbox_pending_messages") == 7
        assert bench.value("attribution_outbox_age_seconds") == 2.5
        assert bench.value("attribution_dead_letter_ratio") == 0.25
        assert bench.value("attribution_dead_letters_in_a_row") == 3
        assert bench.value("attribution_budget_left_usd", period="hour") == 1.25
        assert bench.value("attribution_database_retries_total", sqlstate="40P01") == 2
