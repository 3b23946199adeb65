"""One campaign: answers stream in, workers settle them, things break; then the guarantees are asked."""

import asyncio
import pickle
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from tests.guarantees.chaos.answer_stream import AnswerStream, ToSend
from tests.guarantees.chaos.disturbances import Disturbance, Scenario, Scene
from tests.guarantees.chaos.fleet import Fleet
from tests.guarantees.chaos.services import CALLS_IN_FLIGHT, PARTITIONS, Services, services
from tests.guarantees.chaos.topics import committed_by, ends_of, read_all
from tests.guarantees.chaos.watch import CommitWatch
from tests.guarantees.evidence import Evidence, sent
from tests.guarantees.guarantees import broken_by
from tests.support import lines
from tests.support.command_line import environment, environment_of, program
from worker.app import ensure_topics, migrate, open_audit
from worker.core.llm import CompletionUsage, Stage
from worker.core.records import Record
from worker.embedded.llm_emulator.bill import BillLine
from worker.embedded.llm_emulator.nouns import Api
from worker.settings import Settings

WORKERS = 3
KEY = b"of the search engine's own"
QUIET_S_MAX = 120.0
"""Once nothing is disturbed any more: until everything is settled, dead workers' calls waited out included."""

Progress = Callable[[str, int, int], None]
"""Told what is going on, how many records are committed, and of how many."""


@dataclass(frozen=True)
class Report:
    """What a campaign was, what it did, and what it broke."""

    scenario: str
    seed: int
    outcomes: Mapping[str, int]
    strikes: Mapping[str, int]
    ends: Mapping[str, int]
    looks: int
    calls: Mapping[str, int]
    broken: Mapping[str, Sequence[str]]
    evidence: Evidence


@dataclass
class Campaign:
    scenario: Scenario
    seed: int
    answers: int
    answers_per_s: float
    logs: Path
    progress: Progress = lambda _doing, _committed, _of: None

    async def run(self) -> Report:
        """Raises TimeoutError where records are left without an outcome for good."""
        # Nothing here is drawn from a shared chance: one draw more of one would change all others.
        with services(self.seed, faults=self.scenario.faults) as services_:
            settings = services_.settings("chaos")
            await migrate(settings)
            await ensure_topics(settings)
            fleet = Fleet(settings, self.logs, WORKERS)
            watch = CommitWatch(
                services_.broker,
                services_.database.dsn,
                group=settings.kafka.group_id,
                topic=settings.kafka.answers_topic,
            )
            strikes: Counter[str] = Counter()
            async with fleet.running(), asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(watch.regularly())
                await self._stream(services_, settings, fleet, watch, strikes)
                await self._until_quiet(services_, settings, watch)
                watching.cancel()
            await _run_until_drained(settings)
            await watch.look()
            evidence = await _evidence(services_, settings, fleet, watch)
            report = self._report(evidence, fleet, watch, strikes)
            if report.broken:
                (self.logs / "evidence.pickle").write_bytes(pickle.dumps(evidence))
            return report

    async def _stream(
        self, services_: Services, settings: Settings, fleet: Fleet, watch: CommitWatch, strikes: Counter[str]
    ) -> None:
        """The answers, at their pace, while every disturbance strikes again and again, until nearly all are settled."""

        async def keep_striking(number: int, disturbance: Disturbance) -> None:
            chance = random.Random(f"{self.seed} {number}")
            scene = Scene(services_, fleet, chance)
            next_at = 0.0
            while True:
                next_at += chance.uniform(0.5, 1.5) * disturbance.every_records
                if next_at > self.answers:
                    return
                await watch.reached(next_at)
                await disturbance.strike(scene)
                strikes[type(disturbance).__name__] += 1

        async with asyncio.TaskGroup() as tasks:
            for number, disturbance in enumerate(self.scenario.disturbances):
                tasks.create_task(keep_striking(number, disturbance))
            await self._send(services_, settings, watch)

    async def _send(self, services_: Services, settings: Settings, watch: CommitWatch) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=services_.broker.bootstrap_servers, enable_idempotence=True, request_timeout_ms=120_000
        )
        await producer.start()
        try:
            for number, to_send in enumerate(AnswerStream(self.seed, count=self.answers, partitions=PARTITIONS)):
                record = await _sent(producer, settings.kafka.answers_topic, to_send)
                watch.was_sent(sent(record))
                self.progress("disturbing", watch.committed, self.answers)
                if number % 10 == 9:
                    await asyncio.sleep(10 / self.answers_per_s)
        finally:
            await producer.stop()

    async def _until_quiet(self, services_: Services, settings: Settings, watch: CommitWatch) -> None:
        ends = await ends_of(services_.broker, settings.kafka.answers_topic, PARTITIONS)
        committed: Mapping[int, int] = {}
        try:
            async with asyncio.timeout(QUIET_S_MAX):
                while any(committed.get(partition, 0) != end for partition, end in ends.items()):
                    self.progress("settling the rest", watch.committed, self.answers)
                    await asyncio.sleep(0.3)
                    committed = await committed_by(services_.broker, settings.kafka.group_id)
        except TimeoutError:
            raise TimeoutError(f"not settled {QUIET_S_MAX:g} s after the last strike: {committed} of {ends}") from None

    def _report(self, evidence: Evidence, fleet: Fleet, watch: CommitWatch, strikes: Counter[str]) -> Report:
        outcomes = Counter(row["status"] for row in evidence.attributions)
        outcomes.update(f"dead letter {row['reason']}" for row in evidence.dead_letters)
        return Report(
            scenario=self.scenario.name,
            seed=self.seed,
            outcomes=dict(outcomes),
            strikes=dict(strikes),
            ends=dict(Counter(one.reason for one in fleet.exits)),
            looks=watch.looks,
            calls=dict(Counter(row["outcome"] for row in evidence.llm_calls)),
            broken=broken_by(evidence),
            evidence=evidence,
        )


async def _sent(producer: AIOKafkaProducer, topic: str, to_send: ToSend) -> Record:
    """The record as the topic has it. After a failure it is sent anew: should it be there twice, one is a duplicate."""
    while True:
        try:
            placed = await producer.send_and_wait(topic, to_send.value, key=KEY, partition=to_send.partition)
        except KafkaError:
            await asyncio.sleep(0.5)
            continue
        return Record(topic, placed.partition, placed.offset, placed.timestamp, KEY, to_send.value)


async def _run_until_drained(settings: Settings) -> None:
    """One more worker, when the calls of dead ones have outlived their time: it closes their rows, and publishes."""
    life_s = "SELECT coalesce(extract(epoch FROM max(expires_at) - now()), 0)::float8 FROM llm_call_claims"
    await asyncio.sleep(max(0.0, await lines.value(settings.postgres.dsn.get_secret_value(), life_s)) + 0.1)
    process = await asyncio.create_subprocess_exec(
        *program("run", "--until-drained"),
        env=environment(**environment_of(settings)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, log = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the last worker ended with {process.returncode}: {log[-2_000:].decode(errors='replace')}")


async def _evidence(services_: Services, settings: Settings, fleet: Fleet, watch: CommitWatch) -> Evidence:
    broker, dsn, kafka = services_.broker, services_.database.dsn, settings.kafka

    async def rows(table: str) -> Sequence[Mapping[str, Any]]:
        return await lines.rows(dsn, f"SELECT * FROM {table}")  # noqa: S608  # a table of ours

    return Evidence(
        records=[sent(record) for record in await read_all(broker, kafka.answers_topic, PARTITIONS)],
        committed=await committed_by(broker, kafka.group_id),
        ends=await ends_of(broker, kafka.answers_topic, PARTITIONS),
        answers=await rows("answers"),
        attributions=await lines.rows(dsn, "SELECT *, evidence::text AS evidence FROM attributions"),
        source_attributions=await rows("source_attributions"),
        dead_letters=await rows("dead_letters"),
        llm_calls=await rows("llm_calls"),
        outbox_rows=await lines.value(dsn, "SELECT count(*) FROM outbox"),
        published=await read_all(broker, kafka.attributions_topic, PARTITIONS),
        published_dead_letters=await read_all(broker, kafka.dead_letter_topic, PARTITIONS),
        bill=[_bill_line(line) for line in services_.account.bill()],
        recomputed_otherwise=await _recomputed_otherwise(settings),
        call_faults=await rows("llm_call_faults"),
        committed_too_far=watch.committed_too_far,
        bugs=fleet.bugs,
        calls_cut_off_max=fleet.cut_offs * CALLS_IN_FLIGHT,
    )


async def _recomputed_otherwise(settings: Settings) -> Sequence[str]:
    async with open_audit(settings) as audit:
        return [
            f"{finding.tenant}/{finding.answer_id}: {difference}"
            async for finding in audit.verify()
            for difference in finding.differences
        ]


def _bill_line(line: Mapping[str, Any]) -> BillLine:
    """Back from its JSON."""
    usage = CompletionUsage(**{name: line[name] for name in line if name.endswith("_tokens")})
    stage = Stage(line["stage"]) if line["stage"] else None
    plain = ("number", "model", "client_request_id", "completion_id", "fault", "delivered")
    return BillLine(api=Api(line["api"]), stage=stage, usage=usage, **{name: line[name] for name in plain})
