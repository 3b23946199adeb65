"""The worker itself: its parts wired, run, and stopped in order."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

from worker.adapters.kafka.consumer import KafkaRecordStream
from worker.adapters.kafka.producer import KafkaPublisher
from worker.adapters.postgres.store import LlmAccounts, PostgresStore, open_llm_accounts, open_store
from worker.adapters.postgres.watch import TablesWatch
from worker.adapters.postgres.worker_place import PostgresWorkerPlace
from worker.app.announcing import build_announcement, build_dead_letter_message
from worker.app.judges import Accounts, open_judge
from worker.app.method import (
    build_credit,
    build_decoder,
    build_identify,
    build_methods,
    build_retry_policy,
    code_version,
)
from worker.app.observing import Observing
from worker.app.operations import check_topics
from worker.app.tracing import open_tracing
from worker.consume import Consume
from worker.core.model import Answer, Attribution, Judgement
from worker.core.outcome import Outcome
from worker.errors import UnavailableError
from worker.judge import JudgeAnswer
from worker.ports import Judge
from worker.process import Process
from worker.relay import Relay
from worker.reuse import ReuseJudgements
from worker.settings import JudgeName, Settings
from worker.settle import Outages, Settle
from worker.telemetry import Telemetry, log

UPKEEP_INTERVAL_S = 86_400.0
UPKEEP_RETRY_S = 60.0


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What one run did."""

    outcomes: Mapping[Outcome, int]
    busy_s: float
    """From the first record's start to the last one's outcome."""

    @property
    def records(self) -> int:
        return sum(self.outcomes.values())


class Worker:
    """One worker, wired: consume → settle → process → judge → core, and the relay beside it.

    `upkeep` are things done at the start and once a day.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        store: PostgresStore,
        publisher: KafkaPublisher,
        judge: Callable[[Answer], Awaitable[Judgement]],
        credit: Callable[[Answer, Judgement], Attribution],
        telemetry: Telemetry,
        upkeep: Mapping[str, Callable[[], Awaitable[object]]],
    ) -> None:
        self.settings = settings
        self.store = store
        self.telemetry = telemetry
        self.outages = Outages()
        self.relay = Relay(outbox=store, publisher=publisher, settings=settings.outbox, telemetry=telemetry)
        self._place = PostgresWorkerPlace(store.database, settings.kafka)
        self._upkeep = {"partitions": store.ensure_partitions, **upkeep}
        process = Process(
            decode=build_decoder(settings, telemetry),
            store=store,
            judge=judge,
            attribute=credit,
            encode=build_announcement(settings, telemetry.tracing),
            on_stored=self.relay.wake,
            telemetry=telemetry,
        )
        settle = Settle(
            process=process,
            dead_letters=store,
            encode_dead_letter=build_dead_letter_message(settings),
            identify=build_identify(settings),
            on_stored=self.relay.wake,
            policy=build_retry_policy(settings),
            outages=self.outages,
            telemetry=telemetry,
        )
        self.consume = Consume(
            stream=KafkaRecordStream(settings.kafka),
            settle=settle,
            intake=settings.intake,
            kafka=settings.kafka,
            drain_s=settings.shutdown.drain_s,
            intake_open=self.outages.none_open,
        )
        self.observing = Observing(
            settings.http,
            state=self.consume.state,
            waiting=lambda: self.outages.waiting,
            look=TablesWatch(store.database, settings).look,
            retries=store.database.retries,
            version=code_version(),
            telemetry=telemetry,
        )

    async def run(self, stop: asyncio.Event, *, until_drained: bool = False) -> RunSummary:
        """Work until `stop` is set or, if asked, until everything now in the topic is settled and published.

        Raises:
            FatalError: going on would lose data; an operator must look.
        """
        async with self.observing.serving():
            await check_topics(self.settings)
            await self.store.check_dead_letter_limits()
            await self._place.take()
            await self._work(stop, until_drained=until_drained)
            await self._publish_the_rest(all_of_it=until_drained)
        return self._summary()

    async def _work(self, stop: asyncio.Event, *, until_drained: bool) -> None:
        failures: list[Exception] = []

        async def beside(work: Callable[[], Awaitable[None]]) -> None:
            """A failure beside the line stops the line in order, and is raised when it has stopped."""
            try:
                await work()
            except Exception as error:  # noqa: BLE001  # raised below
                failures.append(error)
                stop.set()

        async with asyncio.TaskGroup() as background:
            tasks = [
                background.create_task(beside(self.relay.run)),
                background.create_task(beside(self._keep_up)),
                background.create_task(beside(self.observing.look_regularly)),
                background.create_task(beside(self._keep_place)),
            ]
            try:
                await self.consume.run(stop, until_drained=until_drained)
            except Exception as error:  # noqa: BLE001  # raised below, where no group wraps it
                failures.insert(0, error)
            for task in tasks:
                task.cancel()
        if failures:
            raise failures[0]

    def _summary(self) -> RunSummary:
        telemetry = self.telemetry
        first_s, last_s = telemetry.first_record_started_s, telemetry.last_record_settled_s
        busy_s = 0.0 if first_s is None or last_s is None else last_s - first_s
        return RunSummary(dict(telemetry.outcomes), busy_s)

    async def _keep_up(self) -> None:
        while True:
            pause_s = UPKEEP_INTERVAL_S
            for name, work in self._upkeep.items():
                try:
                    await work()
                except UnavailableError as error:
                    log.warning("upkeep.postponed", of=name, problem=str(error))
                    pause_s = UPKEEP_RETRY_S
            await asyncio.sleep(pause_s)

    async def _keep_place(self) -> None:
        while True:
            await asyncio.sleep(self.settings.kafka.place_check_s)
            with suppress(UnavailableError):
                await self._place.check()

    async def _publish_the_rest(self, *, all_of_it: bool) -> None:
        """What was stored last goes out now rather than by another worker; it is safe in the outbox either way.

        With `all_of_it` rows that another relay holds are waited for: our own, say, whose end the database has not
        noticed yet.
        """
        try:
            async with asyncio.timeout(self.settings.outbox.publish_timeout_s):
                await self.relay.drain()
                while all_of_it and await self.store.pending():
                    await asyncio.sleep(self.settings.outbox.poll_interval_ms / 1000)
                    await self.relay.drain()
        except TimeoutError:
            log.warning("outbox.left", advice="what is stored and not published, any worker publishes")


@asynccontextmanager
async def open_worker(settings: Settings, judge: Judge | None = None) -> AsyncIterator[Worker]:
    """A worker with its connections; leaving the context closes them. `judge` stands in for the configured one.

    Raises:
        ConfigurationError: a setting that the judge needs, or the extra that tracing needs, is missing.
    """
    bought = judge is None and settings.judge.name is not JudgeName.LOCAL
    async with AsyncExitStack() as stack:
        telemetry = Telemetry(tracing=await stack.enter_async_context(open_tracing(settings)))
        store = await stack.enter_async_context(
            open_store(settings, code_version=code_version(), remembers_judgements=bought)
        )
        publisher = await stack.enter_async_context(KafkaPublisher(settings.kafka))
        upkeep: dict[str, Callable[[], Awaitable[object]]] = {}
        accounts = await stack.enter_async_context(open_llm_accounts(store, settings))
        if judge is None:
            kept = Accounts(accounts.journal, accounts.budgets, durable=True)
            judge = await stack.enter_async_context(open_judge(settings, telemetry, kept))
        if bought:
            upkeep["llm_accounts"] = accounts.sweep
        yield Worker(
            settings,
            store=store,
            publisher=publisher,
            judge=_judging(settings, judge, accounts if bought else None, telemetry),
            credit=build_credit(settings, judge.profile),
            telemetry=telemetry,
            upkeep=upkeep,
        )


def _judging(
    settings: Settings, judge: Judge, accounts: LlmAccounts | None, telemetry: Telemetry
) -> Callable[[Answer], Awaitable[Judgement]]:
    """A judge under a deadline; or, where judging costs money, one that has calls under deadlines and copies."""
    if accounts is None:
        return JudgeAnswer(judge, deadline_s=settings.settle.judge_deadline_s)
    judge_answer = JudgeAnswer(judge)
    if accounts.judgements is None:
        return judge_answer
    method = build_methods(settings)(judge.profile)
    return ReuseJudgements(judge_answer, cache=accounts.judgements, method_hash=method.method_hash, telemetry=telemetry)
