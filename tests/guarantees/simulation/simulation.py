"""One run: workers started, disturbed, started again, until every record has its outcome; then what must hold."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

from tests.guarantees.simulation.broker import Broker
from tests.guarantees.simulation.guarantees import Guarantees
from tests.guarantees.simulation.loop import OwnedTask, Process, ProcessState, SimulationLoop
from tests.guarantees.simulation.provider import Vendor
from tests.guarantees.simulation.schedule import Disturbance, Schedule, Trouble, schedule_of
from tests.guarantees.simulation.truth import Truth
from tests.guarantees.simulation.worker import Servers, SimulatedWorker
from tests.guarantees.simulation.world import Guarantee, Server, World, told
from tests.support.virtual_time import NothingWillHappenError

SETTLING_S_MAX = 3_600.0
"""Most runs take two minutes of virtual time."""

BUDGETED_S_MAX = 6 * 3_600.0
"""A budget of an hour, for which everyone waits, may be spent a few times over."""

TURNS_MAX = 1_000_000
LOOK_S = 1.0
RESTART_S = 3.0
STOPPING_S_MAX = 120.0
DATABASE_TRAVEL_S = 0.02
KAFKA_TRAVEL_S = 0.02

Mutation = Callable[[SimulatedWorker], None]
"""Breaks a worker that is about to run, or what it shares with others."""


@dataclass(frozen=True)
class Report:
    """What one seed came to."""

    seed: int
    violations: tuple[tuple[Guarantee, str], ...]
    digest: str
    """Of everything that happened, in its order."""
    seen: dict[str, int]
    virtual_s: float
    turns: int
    trace: tuple[tuple[Any, ...], ...]
    """Only of a run that broke something."""

    def __str__(self) -> str:
        broken = "\n".join(
            f"  {guarantee.name} ({guarantee.value}): {problem}" for guarantee, problem in self.violations
        )
        return f"seed {self.seed} breaks\n{broken}\nafter this:\n" + "\n".join(map(told, self.trace))


class Simulation:
    """A schedule, its servers, and whoever starts workers and does things to them."""

    def __init__(self, schedule: Schedule, world: World, mutation: Mutation | None) -> None:
        self.schedule = schedule
        self.world = world
        self.mutation = mutation
        truth = Truth(world)
        self.servers = Servers(
            world=world,
            schedule=schedule,
            kafka=Server("kafka", KAFKA_TRAVEL_S, schedule.kafka_loses, in_order=True),
            database=Server("database", DATABASE_TRAVEL_S, schedule.database_loses),
            truth=truth,
            broker=Broker(world, truth, schedule.partitions),
            vendor=Vendor(world, schedule),
        )
        truth.store.remembers_judgements = schedule.copies_judgements
        self.running: dict[Process, SimulatedWorker] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.names = 0
        self.to_produce = len(schedule.records)
        self.is_closing = False

    async def run(self) -> None:
        for produced in self.schedule.records:
            self.world.later(produced.at_s, self._produce, produced)
        for disturbance in self.schedule.disturbances:
            strike = partial(self._strike, disturbance)
            if disturbance.at_s is None:
                self.world.at_event[disturbance.at_event] = strike
            else:
                self.world.between_turns_after(disturbance.at_s, strike)
        for _ in range(self.schedule.workers):
            self._start()
        waits_for_budgets = self.schedule.budgets.total_usd_per_hour is not None
        s_max = BUDGETED_S_MAX if waits_for_budgets else SETTLING_S_MAX
        await self._until(self._is_done, s_max, "records are left without an outcome")
        self.is_closing = True
        self.world.at_event.clear()
        for worker in self.running.values():
            worker.stop.set()
        await self._until(lambda: not self.running, STOPPING_S_MAX, "a worker does not stop")
        if self.world.violations:
            return
        self.servers.truth.sweep()
        self._check_tasks()
        Guarantees(self.servers).check()

    async def _until(self, condition: Callable[[], bool], s_max: float, problem: str) -> None:
        """Looks again every second, which stops with the first violation."""
        began_s = self.world.loop.time()
        while not condition() and not self.world.violations:
            if self.world.loop.time() - began_s > s_max or self.world.loop.turns > TURNS_MAX:
                self.world.violate(Guarantee.NOTHING_HANGS, f"{problem}, after {s_max:.0f} s")
            await asyncio.sleep(LOOK_S)

    def _produce(self, produced: object) -> None:
        self.servers.broker.append(produced)  # type: ignore[arg-type]  # of the loop's untyped arguments
        self.to_produce -= 1

    def _is_done(self) -> bool:
        broker, truth = self.servers.broker, self.servers.truth
        return not self.to_produce and not truth.store.outbox and broker.all_committed()

    def _check_tasks(self) -> None:
        current = asyncio.current_task()
        for task in asyncio.all_tasks():
            if task is current or not isinstance(task, OwnedTask) or task in self.tasks:
                continue
            if task.owner is None or not task.owner.was_killed:
                self.world.violate(
                    Guarantee.NOTHING_LEFT, f"a task of {task.owner and task.owner.name} runs on: {task}"
                )

    # Workers

    def _start(self) -> None:
        if self.is_closing:
            return
        self.names += 1
        process = Process(f"w{self.names}", self.world.loop)
        self.world.note("worker.started", process.name)
        task = self.world.loop.create_task(self._work(process), context=process.context)
        self.tasks.add(task)

    async def _work(self, process: Process) -> None:
        worker = SimulatedWorker(self.servers, process)
        if self.mutation is not None:
            self.mutation(worker)
        self.running[process] = worker
        try:
            await worker.run()
        except Exception as error:  # a worker that ends so has a bug: nothing here is fatal
            self.world.violate(Guarantee.NO_BUGS, f"{process.name} ended by {error!r}")
            raise
        if not self.world.is_over:
            self._ended(process, worker)

    def _ended(self, process: Process, worker: SimulatedWorker) -> None:
        self.running.pop(process, None)
        self.world.note("worker.ended", process.name)
        for what, amount in worker.leaks().items():
            self.world.violate(Guarantee.NOTHING_LEFT, f"{process.name} ended with {amount} {what}")
        if len(self.running) < self.schedule.workers:
            self.world.later(RESTART_S * self.world.rng.random(), self._start)

    # Disturbances

    def _strike(self, disturbance: Disturbance) -> None:
        """Between two turns of the loop."""
        if self.is_closing:
            return
        trouble, lasts_s = disturbance.trouble, disturbance.lasts_s
        self.world.note(f"trouble.{trouble.name}", disturbance.target, f"{lasts_s:.2f} s")
        match trouble:
            case Trouble.KILL | Trouble.STOP | Trouble.FREEZE | Trouble.LOSE_SESSION:
                awake = [process for process in self.running if process.state is ProcessState.RUNNING]
                if awake:
                    self._strike_one(trouble, awake[disturbance.target % len(awake)], lasts_s)
            case Trouble.KILL_ALL:
                for process in list(self.running):
                    self._kill(process)
            case Trouble.SCALE_OUT:
                if len(self.running) <= self.schedule.workers:
                    self._start()
            case Trouble.REBALANCE:
                self.servers.broker.rebalance()
            case Trouble.BROKER_DOWN | Trouble.DATABASE_DOWN | Trouble.COMMITS_FAIL | Trouble.PROVIDER_DOWN:
                self._take_down(trouble, lasts_s)
            case _:
                assert_never(trouble)

    def _strike_one(self, trouble: Trouble, process: Process, lasts_s: float) -> None:
        match trouble:
            case Trouble.KILL:
                self._kill(process)
            case Trouble.STOP:
                process.run_in(self.running[process].stop.set)
            case Trouble.FREEZE:
                self._freeze(process, lasts_s)
            case _:
                self._lose_session(process)

    def _take_down(self, trouble: Trouble, lasts_s: float) -> None:
        servers = self.servers
        match trouble:
            case Trouble.BROKER_DOWN:
                servers.kafka.outage.begin(self.world, lasts_s)
            case Trouble.DATABASE_DOWN:
                servers.database.outage.begin(self.world, lasts_s)
            case Trouble.COMMITS_FAIL:
                servers.broker.commits_fail.begin(self.world, lasts_s)
            case _:
                servers.vendor.outage.begin(self.world, lasts_s)

    def _kill(self, process: Process) -> None:
        if process.state is not ProcessState.DEAD:
            self.world.loop.halt(process, ProcessState.DEAD)
        self.running.pop(process, None)
        self.servers.broker.fell_silent(process)
        # Its connections are reset: the database rolls back what was open.
        self.world.later(self.world.rng.random(), self.servers.truth.give_up_claims_of, process)
        self.world.later(RESTART_S * self.world.rng.random(), self._start)

    def _freeze(self, process: Process, lasts_s: float) -> None:
        self.world.loop.halt(process, ProcessState.FROZEN)
        self.servers.broker.fell_silent(process)
        self.world.between_turns_after(lasts_s, partial(self._wake, process))

    def _wake(self, process: Process) -> None:
        if process.state is ProcessState.FROZEN:
            self.world.note("worker.woken", process.name)
            self.world.loop.let_run(process)

    def _lose_session(self, process: Process) -> None:
        for member in list(self.servers.broker.members.values()):
            if member.client.process is process:
                self.servers.broker.expire(member.number)


def simulate(seed: int, mutation: Mutation | None = None) -> Report:
    """The same report for the same seed, in any process."""
    rng = random.Random(seed)
    schedule = schedule_of(rng)
    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SimulationLoop)
        loop.shuffles_with = rng if schedule.shuffled else None
        world = World(rng, loop)
        loop.set_exception_handler(lambda _, context: _tell(world, context))
        try:
            runner.run(Simulation(schedule, world, mutation).run())
        except NothingWillHappenError:
            world.violate(Guarantee.NOTHING_HANGS, "everything waits, and no timer is set")
        report = Report(
            seed=seed,
            violations=tuple(world.violations),
            digest=world.digest(),
            seen=dict(world.seen),
            virtual_s=loop.now_s,
            turns=loop.turns,
            trace=tuple(world.trace) if world.violations else (),
        )
        bury(loop, world)
    return report


def _tell(world: World, context: dict[str, object]) -> None:
    if not world.is_over:
        world.violate(Guarantee.NO_BUGS, f"{context.get('message')}: {context.get('exception')!r}")


def bury(loop: SimulationLoop, world: World) -> None:
    """All that a killed process left unfinished is cancelled, in a world that answers nobody any more."""
    world.is_over = True
    for task in asyncio.all_tasks(loop):
        if isinstance(task, OwnedTask) and task.owner is not None and task.owner.is_halted:
            loop.let_run(task.owner)
