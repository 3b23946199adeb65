"""One worker, wired of the worker's own code as `worker.app` wires it; only what it talks to is simulated."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from tests.fakes.provider import FakePrices
from tests.guarantees.simulation.broker import Broker
from tests.guarantees.simulation.database import SimulatedBudgets, SimulatedJournal, SimulatedStore, now
from tests.guarantees.simulation.loop import Process
from tests.guarantees.simulation.provider import SimulatedProvider, Vendor
from tests.guarantees.simulation.schedule import DRAIN_S, KAFKA, LLM, OUTBOX, SETTLE, Schedule
from tests.guarantees.simulation.stream import SimulatedPublisher, SimulatedStream
from tests.guarantees.simulation.truth import Truth
from tests.guarantees.simulation.world import Server, World
from tests.support.judging import PRICES, ROOMY, SECRET, count_words
from tests.support.limiters import EpochClock
from worker.app.announcing import build_announcement, build_dead_letter_message
from worker.app.method import build_credit, build_decoder, build_identify, build_methods, build_retry_policy
from worker.calls import Calls
from worker.consume import Consume
from worker.core.asking import JudgingMethod
from worker.core.breaker import CircuitBreaker
from worker.core.buckets import SECOND_NS
from worker.core.model import Answer, Judgement
from worker.errors import UnavailableError
from worker.judge import JudgeAnswer
from worker.limiter import Limiter
from worker.llm_judge import LlmJudge
from worker.process import Process as ProcessRecord
from worker.relay import Relay
from worker.reuse import ReuseJudgements
from worker.settings import Settings
from worker.settle import Outages, Settle
from worker.telemetry import Telemetry

SWEEP_S = 60.0


@dataclass(frozen=True)
class Servers:
    """All that a worker can talk to."""

    world: World
    schedule: Schedule
    kafka: Server
    database: Server
    truth: Truth
    broker: Broker
    vendor: Vendor


@cache
def settings() -> Settings:
    return Settings().model_copy(update={"settle": SETTLE, "kafka": KAFKA, "outbox": OUTBOX, "llm": LLM})


@cache
def telemetry() -> Telemetry:
    """Of all simulated workers: it only counts, and is slow to make."""
    return Telemetry()


class SimulatedWorker:
    """Made within its process; a mutation changes its parts before it runs."""

    def __init__(self, servers: Servers, process: Process) -> None:
        self.servers = servers
        self.process = process
        self.stop = asyncio.Event()
        self.outages = Outages()
        world, schedule = servers.world, servers.schedule
        self.settings = settings().model_copy(update={"intake": schedule.intake})
        if schedule.budgets.any_set:
            # A budget's window may end in an hour; nothing is learnt from looking twelve hundred times.
            patient = SETTLE.model_copy(update={"outage_backoff_max_s": 60.0})
            self.settings = self.settings.model_copy(update={"settle": patient})
        self.store = SimulatedStore(world, servers.database, servers.truth)
        self.journal = SimulatedJournal(world, servers.database, servers.truth)
        self.relay = Relay(
            outbox=self.store,
            publisher=SimulatedPublisher(world, servers.kafka, servers.broker),
            settings=OUTBOX,
            telemetry=telemetry(),
        )
        self.limiter = self._limiter()
        self.budgets = SimulatedBudgets(world, servers.database, servers.truth, schedule.budgets)
        self.judge = self._judge()
        self.record = ProcessRecord(
            decode=build_decoder(self.settings, telemetry()),
            store=self.store,
            judge=self._judging(self.judge),
            attribute=build_credit(self.settings, self.judge.profile),
            encode=build_announcement(self.settings, telemetry().tracing),
            on_stored=self.relay.wake,
            telemetry=telemetry(),
        )
        self.settle = Settle(
            process=self.record,
            dead_letters=self.store,
            encode_dead_letter=build_dead_letter_message(self.settings),
            identify=build_identify(self.settings),
            on_stored=self.relay.wake,
            policy=build_retry_policy(self.settings),
            outages=self.outages,
            telemetry=telemetry(),
            monotonic=self._now_s,
            jitter=world.rng.random,
        )
        self.consume = Consume(
            stream=SimulatedStream(world, servers.kafka, servers.broker),
            settle=self.settle,
            intake=schedule.intake,
            kafka=KAFKA,
            drain_s=DRAIN_S,
            intake_open=self.outages.none_open,
            monotonic=self._now_s,
        )

    def _now_s(self) -> float:
        return self.servers.world.loop.time()

    def _limiter(self) -> Limiter:
        limits = self.servers.schedule.limiter
        return Limiter(
            model=SimulatedProvider.model,
            settings=limits,
            rule=self.servers.schedule.rule,
            breaker=CircuitBreaker(
                failures_max=limits.outage_failures_max, open_ns=round(limits.outage_probe_s * SECOND_NS)
            ),
            clock=EpochClock(),
            jitter=self.servers.world.rng.random,
        )

    def _judge(self) -> LlmJudge:
        world, schedule = self.servers.world, self.servers.schedule
        provider = SimulatedProvider(world, self.servers.vendor, schedule.limiter.calls_in_flight)
        calls = Calls(
            provider=provider,
            limiter=self.limiter,
            journal=self.journal,
            budgets=self.budgets,
            prices=FakePrices(PRICES),
            settings=LLM,
            count_tokens=count_words,
            telemetry=telemetry(),
            monotonic=self._now_s,
            now=now,
            jitter=world.rng.random,
        )
        return LlmJudge(
            provider=provider,
            calls=calls,
            journal=self.journal,
            method=JudgingMethod(),
            limits=ROOMY_REPLIES,
            secret=SECRET,
            attempts_max=SETTLE.attempts_max,
            count_tokens=count_words,
            telemetry=telemetry(),
        )

    def _judging(self, judge: LlmJudge) -> Callable[[Answer], Awaitable[Judgement]]:
        judge_answer = JudgeAnswer(judge)
        if not self.servers.schedule.copies_judgements:
            return judge_answer
        method = build_methods(self.settings)(judge.profile)
        return ReuseJudgements(judge_answer, cache=self.store, method_hash=method.method_hash, telemetry=telemetry())

    async def run(self) -> None:
        """As `app.Worker` does: the line, the relay and the sweep beside it, and what is left is published."""
        failures: list[Exception] = []

        async def beside(work: Callable[[], Awaitable[None]]) -> None:
            try:
                await work()
            except Exception as error:  # noqa: BLE001  # raised below
                failures.append(error)
                self.stop.set()

        async with asyncio.TaskGroup() as background:
            tasks = [background.create_task(beside(self.relay.run)), background.create_task(beside(self._sweep))]
            try:
                await self.consume.run(self.stop)
            except Exception as error:  # noqa: BLE001  # raised below
                failures.insert(0, error)
            for task in tasks:
                task.cancel()
        if failures:
            raise failures[0]
        try:
            async with asyncio.timeout(OUTBOX.publish_timeout_s):
                await self.relay.drain()
        except TimeoutError:
            return

    async def _sweep(self) -> None:
        while True:
            with suppress(UnavailableError):
                await self.journal.sweep()
            await asyncio.sleep(SWEEP_S)

    def leaks(self) -> dict[str, object]:
        """What is still held by a worker that ended in order; empty when all was given back."""
        state = self.limiter.state()
        held = {
            "calls in flight": state.account.calls_in_flight,
            "calls in line": state.waiting,
            "records that wait for something down": self.outages.waiting,
        }
        return {name: amount for name, amount in held.items() if amount}


ROOMY_REPLIES = replace(ROOMY, output_tokens_max=2_000)
