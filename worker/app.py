"""The composition root: the one place that names concrete adapters and wires them into a worker."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version

import uvloop

from worker.adapters.kafka import topics
from worker.adapters.kafka.consumer import KafkaRecordStream
from worker.adapters.kafka.producer import KafkaPublisher
from worker.adapters.kafka.topics import TopicReport
from worker.adapters.local_judge import LocalJudge
from worker.adapters.postgres.audit import Audit
from worker.adapters.postgres.database import errors_translated, open_database
from worker.adapters.postgres.migrate import migrate_database
from worker.adapters.postgres.report import AnswerReport, OwnerTotal, Report, Spend, UngroundedKeyPoint
from worker.adapters.postgres.store import PostgresStore, open_store
from worker.codec import decode_answer, encode_attribution, encode_dead_letter, read_answer_key
from worker.consume import Consume
from worker.core.attribution import attribute
from worker.core.method import build_method
from worker.core.model import Answer, Attribution, Judgement
from worker.core.outcome import Outcome
from worker.core.policy import Grouping, Policy
from worker.core.records import OutboundMessage, Record
from worker.core.retry import RetryPolicy
from worker.errors import UnavailableError
from worker.judge import JudgeAnswer
from worker.ports import DeadLetter, Judge
from worker.process import Process
from worker.relay import Relay
from worker.settings import ConfigurationError, JudgeName, Settings
from worker.settle import Outages, Settle
from worker.telemetry import Telemetry, log

PARTITIONS_INTERVAL_S = 86_400.0
PARTITIONS_RETRY_S = 60.0
FACTS_MAX = 100


@cache  # the look-up reads the installed package's files
def code_version() -> str:
    """Recorded beside everything stored; never part of a method."""
    return version("attribution-worker")


def build_judge(settings: Settings) -> Judge:
    """The configured judge."""
    match settings.judge.name:
        case JudgeName.LOCAL:
            return LocalJudge(settings.judge.key_points_max)


def build_credit(settings: Settings, judge: Judge) -> Callable[[Answer, Judgement], Attribution]:
    """The arithmetic of the configured method.

    Raises:
        ConfigurationError: the policy's parameters make no policy.
    """
    try:
        policy = Policy.of(settings.credit.policy, k=settings.credit.k, omega=settings.credit.omega)
    except ValueError as error:
        raise ConfigurationError(f"credit: {error}") from None
    grouping = Grouping.named(settings.credit.grouping)
    profile = judge.profile
    method = build_method(
        policy=policy, grouping=grouping, judge=profile, grounding_threshold=profile.grounding_threshold
    )
    return partial(attribute, method=method, policy=policy, grouping=grouping)


def build_decoder(settings: Settings, telemetry: Telemetry) -> Callable[[Record], Answer]:
    """Records to answers under the intake limits; what was ignored or scrubbed is counted."""

    def decode(record: Record) -> Answer:
        decoded = decode_answer(record, limits=settings.intake, now=datetime.now(UTC))
        telemetry.event_decoded(unknown_field_count=decoded.unknown_field_count, scrubbed_count=decoded.scrubbed_count)
        return decoded.answer

    return decode


def build_attributor(settings: Settings) -> Callable[[Record], Awaitable[Attribution]]:
    """Record in, attribution out, exactly as the worker computes it; nothing is stored."""
    judge = build_judge(settings)
    decode = build_decoder(settings, Telemetry())
    judge_answer = JudgeAnswer(judge, deadline_s=settings.settle.judge_deadline_s)
    credit = build_credit(settings, judge)

    async def attribute_record(record: Record) -> Attribution:
        answer = decode(record)
        return credit(answer, await judge_answer(answer))

    return attribute_record


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
    """One worker, wired: consume → settle → process → judge → core, and the relay beside it."""

    def __init__(self, settings: Settings, store: PostgresStore, publisher: KafkaPublisher, judge: Judge) -> None:
        self.settings = settings
        self.store = store
        self.telemetry = Telemetry()
        self.outages = Outages()
        self.relay = Relay(outbox=store, publisher=publisher, settings=settings.outbox, telemetry=self.telemetry)
        process = Process(
            decode=build_decoder(settings, self.telemetry),
            store=store,
            judge=JudgeAnswer(judge, deadline_s=settings.settle.judge_deadline_s),
            attribute=build_credit(settings, judge),
            encode=partial(_encode_attribution, settings),
            on_stored=self.relay.wake,
        )
        settle = Settle(
            process=process,
            dead_letters=store,
            encode_dead_letter=partial(_encode_dead_letter, settings),
            read_answer_key=read_answer_key,
            on_stored=self.relay.wake,
            policy=_retry_policy(settings),
            outages=self.outages,
            telemetry=self.telemetry,
        )
        self.consume = Consume(
            stream=KafkaRecordStream(settings.kafka),
            settle=settle,
            intake=settings.intake,
            kafka=settings.kafka,
            drain_s=settings.shutdown.drain_s,
            intake_open=self.outages.none_open,
        )

    async def run(self, stop: asyncio.Event, *, until_drained: bool = False) -> RunSummary:
        """Work until `stop` is set or, if asked, until everything now in the topic is settled and published.

        Raises:
            FatalError: going on would lose data; an operator must look.
        """
        await check_topics(self.settings)
        await self.store.check_dead_letter_limits()
        try:
            async with asyncio.TaskGroup() as background:
                tasks = [
                    background.create_task(self.relay.run()),
                    background.create_task(self._keep_partitions_ahead()),
                ]
                await self.consume.run(stop, until_drained=until_drained)
                for task in tasks:
                    task.cancel()
        except* Exception as group:  # noqa: BLE001  # unwrapped and raised again
            raise first_of(group) from None
        await self._publish_the_rest()
        return self._summary()

    def _summary(self) -> RunSummary:
        telemetry = self.telemetry
        first_s, last_s = telemetry.first_record_started_s, telemetry.last_record_settled_s
        busy_s = 0.0 if first_s is None or last_s is None else last_s - first_s
        return RunSummary(dict(telemetry.outcomes), busy_s)

    async def _keep_partitions_ahead(self) -> None:
        while True:
            try:
                await self.store.ensure_partitions()
                pause_s = PARTITIONS_INTERVAL_S
            except UnavailableError as error:
                log.warning("partitions.not_made", problem=str(error))
                pause_s = PARTITIONS_RETRY_S
            await asyncio.sleep(pause_s)

    async def _publish_the_rest(self) -> None:
        """What was stored last goes out now rather than by another worker; it is safe in the outbox either way."""
        try:
            async with asyncio.timeout(self.settings.outbox.publish_timeout_s):
                await self.relay.drain()
        except TimeoutError:
            return


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first real error in a group of groups; the others were caused by it or are in the log."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@asynccontextmanager
async def open_worker(settings: Settings, judge: Judge | None = None) -> AsyncIterator[Worker]:
    """A worker with its connections; leaving the context closes them."""
    async with open_store(settings, code_version=code_version()) as store, KafkaPublisher(settings.kafka) as publisher:
        yield Worker(settings, store, publisher, judge or build_judge(settings))


def run_until_stopped(settings: Settings, *, until_drained: bool) -> RunSummary:
    """Run a worker in this process until SIGTERM or SIGINT; a second one does not wait for the drain."""
    return uvloop.run(_run_until_signalled(settings, until_drained=until_drained))


async def _run_until_signalled(settings: Settings, *, until_drained: bool) -> RunSummary:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    running = asyncio.current_task()

    def on_signal() -> None:
        if stop.is_set() and running is not None:
            running.cancel("a second signal")
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    async with open_worker(settings) as worker:
        return await worker.run(stop, until_drained=until_drained)


async def check_topics(settings: Settings) -> Sequence[TopicReport]:
    """Compare the topics with the settings.

    Raises:
        FatalError: one is missing or unusable.
    """
    return await topics.check_topics(settings.kafka)


async def ensure_topics(settings: Settings) -> Sequence[TopicReport]:
    """Make the topics that are missing; an existing one is never altered."""
    return await topics.ensure_topics(settings.kafka)


async def publish(settings: Settings, messages: Sequence[OutboundMessage]) -> None:
    """Publish messages as they are; used to put answer events in."""
    async with KafkaPublisher(settings.kafka) as publisher:
        await publisher.publish(messages)


async def migrate(settings: Settings) -> None:
    """Bring the database to the newest revision, with its partitions."""
    with errors_translated():
        await migrate_database(settings.postgres)


async def resume(settings: Settings, reason: str) -> None:
    """An operator's word that the dead-letter limits may count anew."""
    async with open_store(settings, code_version=code_version()) as store:
        await store.resume(reason)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the tables say, for a person's first look."""

    answers: Sequence[AnswerReport]
    owners: Sequence[OwnerTotal]
    ungrounded: Sequence[UngroundedKeyPoint]
    spend: Spend


async def collect_facts(settings: Settings) -> Facts:
    """Read the first answers and the totals from the database."""
    async with open_database(settings.postgres) as database:
        report = Report(database)
        return Facts(
            answers=await report.answers(FACTS_MAX),
            owners=await report.owner_totals(),
            ungrounded=await report.ungrounded_key_points(FACTS_MAX),
            spend=await report.spend(),
        )


@asynccontextmanager
async def open_audit(settings: Settings) -> AsyncIterator[Audit]:
    """Recomputes what is stored; reads only."""
    async with open_database(settings.postgres) as database:
        yield Audit(database)


def override_method(
    settings: Settings,
    *,
    judge: JudgeName | None = None,
    policy: str | None = None,
    k: int | None = None,
    omega: Sequence[str] | None = None,
    grouping: str | None = None,
) -> Settings:
    """Settings with these parts of the method replaced, validated anew.

    Raises:
        ConfigurationError: a value that its setting refuses.
    """
    credit = {"policy": policy, "k": k, "omega": omega, "grouping": grouping}
    return settings.overridden({"judge": {"name": judge}, "credit": credit})


def _encode_attribution(settings: Settings, attribution: Attribution) -> OutboundMessage:
    return encode_attribution(
        attribution,
        topic=settings.kafka.attributions_topic,
        source_uri=f"/attribution-worker/{settings.kafka.group_id}",
        code_version=code_version(),
        computed_at=datetime.now(UTC),
    )


def _encode_dead_letter(settings: Settings, dead_letter: DeadLetter) -> OutboundMessage:
    return encode_dead_letter(
        dead_letter.record,
        reason=dead_letter.reason,
        detail=dead_letter.detail,
        attempts=dead_letter.attempts,
        topic=settings.kafka.dead_letter_topic,
        copy_bytes_max=settings.dead_letters.copy_bytes_max,
        code_version=code_version(),
    )


def _retry_policy(settings: Settings) -> RetryPolicy:
    settle = settings.settle
    return RetryPolicy(
        attempts_max=settle.attempts_max,
        backoff_base_s=settle.backoff_base_s,
        backoff_max_s=settle.backoff_max_s,
        outage_backoff_max_s=settle.outage_backoff_max_s,
    )
