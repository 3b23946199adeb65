"""One run of the whole line over every hostile record, and all that is left of it."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from schemas.dead_letter import DeadLetterReason
from tests.guarantees.hostile.corpus import Case, golden_cases, hostile_cases, neighbours
from tests.support import lines
from tests.support.conditions import until, until_equal
from tests.support.kafka import committed, producer_of
from worker.adapters.local_judge import LocalJudge
from worker.app import ensure_topics, open_worker
from worker.core.model import Answer, AnswerKey, Judgement, JudgeProfile
from worker.core.outcome import Outcome
from worker.embedded.broker import Broker
from worker.errors import PermanentError, RetryableError
from worker.settings import Settings

MESSAGE_BYTES_MAX = 16 * 2**20
HOSTILE_BETWEEN_NEIGHBOURS = 5
ATTEMPTS_MAX = 2
TROUBLE = "troubled judge"
TROUBLES: Mapping[str, Exception] = {
    "judge-refused": PermanentError(DeadLetterReason.JUDGE_REFUSED, TROUBLE),
    "budget-exhausted": PermanentError(DeadLetterReason.BUDGET_EXHAUSTED, TROUBLE),
    "judge-incomplete": RetryableError(TROUBLE, exhausted_reason=DeadLetterReason.JUDGE_INCOMPLETE),
    "attempts-exhausted": RetryableError(TROUBLE),
}
"""What no event can cause alone, by answer id."""


class TroubledJudge:
    """The local judge, but for the answers it has trouble with."""

    def __init__(self, settings: Settings) -> None:
        self._judge = LocalJudge(settings.judge.key_points_max)

    @property
    def profile(self) -> JudgeProfile:
        return self._judge.profile

    async def judge(self, answer: Answer) -> Judgement:
        if answer.key.answer_id in TROUBLES:
            raise TROUBLES[answer.key.answer_id]
        return await self._judge.judge(answer)


@dataclass(frozen=True)
class Evidence:
    """What the tables, the topics and the worker say afterwards."""

    offsets: Mapping[str, int]
    """Of each case's record, by the case's name."""
    outcomes: Mapping[Outcome, int]
    attributions: Mapping[AnswerKey, Sequence[Mapping[str, Any]]]
    letters: Mapping[int, Mapping[str, Any]]
    """By the offset of the record that was set aside."""
    announced: Sequence[ConsumerRecord]
    dead_letter_records: Mapping[int, ConsumerRecord]
    committed: int | None


def all_cases() -> list[Case]:
    """With ordinary events among them, in the order they are sent in: first those that need nothing before them."""
    hostile = golden_cases() + hostile_cases()
    mixed: list[Case] = []
    for start, neighbour in zip(
        range(0, len(hostile), HOSTILE_BETWEEN_NEIGHBOURS), neighbours(len(hostile)), strict=False
    ):
        mixed += [*hostile[start : start + HOSTILE_BETWEEN_NEIGHBOURS], neighbour]
    return sorted(mixed, key=lambda case: case.after is not None)


async def run_hostile(broker: Broker, dsn: str, cases: Sequence[Case]) -> Evidence:
    """Send every case to one partition, let one worker settle them all, and gather what is left."""
    settings = lines.settings_of(
        broker,
        dsn,
        f"hostile.{uuid.uuid4().hex[:8]}",
        kafka={"partitions": 1, "message_bytes_max": MESSAGE_BYTES_MAX},
        settle={"attempts_max": ATTEMPTS_MAX},
        dead_letters={"consecutive_max": 10_000, "ratio_max": 1},
    )
    await ensure_topics(settings)
    offsets: dict[str, int] = {}
    async with open_worker(settings, TroubledJudge(settings)) as worker:
        stop = asyncio.Event()

        async def send_all() -> None:
            for later in (False, True):
                wave = [case for case in cases if (case.after is not None) is later]
                offsets.update(await _send(broker, settings, wave))
                await until(lambda: sum(worker.telemetry.outcomes.values()) >= len(offsets), timeout_s=60)
            # A stop may leave the last messages to the next worker, and here is none.
            await until_equal(lambda: lines.value(dsn, "SELECT count(*) FROM outbox"), 0, timeout_s=60)
            stop.set()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send_all())
            summary = await worker.run(stop)
    return await _gathered(broker, settings, dsn, offsets, summary.outcomes)


async def _send(broker: Broker, settings: Settings, cases: Sequence[Case]) -> dict[str, int]:
    topic = settings.kafka.answers_topic
    async with producer_of(broker, max_request_size=MESSAGE_BYTES_MAX) as producer:
        sent = [(case.name, await _sent(producer, topic, case)) for case in cases]
        return {name: (await acknowledgement).offset for name, acknowledgement in sent}


async def _sent(producer: AIOKafkaProducer, topic: str, case: Case) -> "asyncio.Future[Any]":
    sent: asyncio.Future[Any] = await producer.send(
        topic, case.value, key=case.key, headers=list(case.headers), timestamp_ms=case.timestamp_ms
    )
    return sent


async def _gathered(
    broker: Broker, settings: Settings, dsn: str, offsets: Mapping[str, int], outcomes: Mapping[Outcome, int]
) -> Evidence:
    kafka = settings.kafka
    attributions: dict[AnswerKey, list[Mapping[str, Any]]] = {}
    query = (
        "SELECT a.tenant, a.answer_id, a.status, a.utility_units, count(s.*) AS sources, sum(s.credit_units) AS credit,"
        " sum(s.share_units) AS share FROM attributions a LEFT JOIN source_attributions s"
        " USING (tenant, answer_id, revision, settled_at) GROUP BY 1, 2, a.revision, 3, 4"
    )
    for row in await lines.rows(dsn, query):
        attributions.setdefault(AnswerKey(row["tenant"], row["answer_id"]), []).append(row)
    letters = await lines.rows(dsn, "SELECT * FROM dead_letters")
    published = await _everything_in(broker, kafka.dead_letter_topic)
    return Evidence(
        offsets=offsets,
        outcomes=outcomes,
        attributions=attributions,
        letters={letter["record_offset"]: letter for letter in letters},
        announced=await _everything_in(broker, kafka.attributions_topic),
        dead_letter_records={int(_last(record, "dlq_offset")): record for record in published},
        committed=await committed(broker, kafka.group_id, kafka.answers_topic),
    )


async def _everything_in(broker: Broker, topic: str) -> list[ConsumerRecord]:
    """Up to where the one partition ends now."""
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        records: list[ConsumerRecord] = []
        while (consumer.highwater(partition) or 1) > await consumer.position(partition):
            records += (await consumer.getmany(timeout_ms=500)).get(partition, [])
        return records
    finally:
        await consumer.stop()


def _last(record: ConsumerRecord, name: str) -> bytes:
    told: bytes = [value for header, value in record.headers if header == name][-1]
    return told
