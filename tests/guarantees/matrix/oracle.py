"""The one judge of every cell: what must hold whatever met whichever step."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaTopicPartition

from tests.guarantees.evidence import Evidence, sent
from tests.guarantees.guarantees import broken_by
from tests.guarantees.matrix.scene import Scene, looking_at
from tests.support import lines
from tests.support.conditions import until_equal
from worker.core.records import Record

TABLES = ("answers", "attributions", "source_attributions", "dead_letters", "llm_calls", "llm_call_faults", "outbox")
CONNECTIONS = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE datname = current_database() AND application_name = 'attribution-worker'"
)

READER_OF_AIOKAFKA = "AIOKafkaConnection._read"


@asynccontextmanager
async def nothing_left_behind(dsn: str) -> AsyncIterator[None]:
    """Neither a task in this process nor a connection at the server."""
    before = asyncio.all_tasks()
    yield
    left = [task for task in asyncio.all_tasks() - before if not task.done()]
    dropped = [task for task in left if getattr(task.get_coro(), "__qualname__", "") == READER_OF_AIOKAFKA]
    if dropped:
        # aiokafka drops a connection that it is making when it is closed; it is collected here, not in another test.
        gc.collect()
    assert left == dropped, f"tasks are left: {left}"
    await until_equal(lambda: lines.value(dsn, CONNECTIONS), 0)


async def assert_every_guarantee_holds(scene: Scene, *, calls_cut_off_max: int) -> None:
    """One outcome for each record, once, told as stored, committed, and paid for as billed."""
    async with looking_at(scene.part.dsn) as database:
        found = {table: await database.fetch(f"SELECT * FROM {table}") for table in TABLES}  # noqa: S608  # our names
    kafka = scene.part.settings.kafka
    answers, published, dead_letters = kafka.answers_topic, kafka.attributions_topic, kafka.dead_letter_topic
    records: dict[str, list[Record]] = {answers: [], published: [], dead_letters: []}
    async with reading(scene, records) as consumer:
        await read_to_the_end(consumer, records)
        where = KafkaTopicPartition(answers, 0)
        committed = await consumer.committed(where)
        ends = await consumer.end_offsets([where])
    evidence = Evidence(
        records=[sent(record) for record in records[answers]],
        committed={0: committed or 0},
        ends={0: ends[where]},
        answers=found["answers"],
        attributions=found["attributions"],
        source_attributions=found["source_attributions"],
        dead_letters=found["dead_letters"],
        llm_calls=found["llm_calls"],
        outbox_rows=len(found["outbox"]),
        published=records[published],
        published_dead_letters=records[dead_letters],
        bill=scene.emulator.bill.lines if scene.emulator else (),
        call_faults=found["llm_call_faults"],
        calls_cut_off_max=calls_cut_off_max,
    )
    assert len(evidence.records) == len(scene.part.answer_ids)
    assert [row["answer_id"] for row in evidence.dead_letters] == ["poison"]
    assert broken_by(evidence) == {}


@asynccontextmanager
async def reading(scene: Scene, topics: Iterable[str]) -> AsyncIterator[AIOKafkaConsumer]:
    """From the beginning, as nobody of the group, which can yet be asked what it committed."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=scene.broker.bootstrap_servers,
        group_id=scene.part.settings.kafka.group_id,
        enable_auto_commit=False,
        fetch_max_wait_ms=10,
    )
    await consumer.start()
    try:
        partitions = [KafkaTopicPartition(topic, 0) for topic in topics]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        yield consumer
    finally:
        await consumer.stop()


async def read_to_the_end(consumer: AIOKafkaConsumer, into: dict[str, list[Record]]) -> None:
    ends = await consumer.end_offsets(list(consumer.assignment()))
    while [where for where, end in ends.items() if await consumer.position(where) < end]:
        for batch in (await consumer.getmany(timeout_ms=100)).values():
            for read in batch:
                into[read.topic].append(_copied(read))


def _copied(read: object) -> Record:
    names: Sequence[str] = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    topic, partition, offset, timestamp_ms, key, value, headers = (getattr(read, name) for name in names)
    return Record(topic, partition, offset, timestamp_ms, key, value, tuple(headers))
