"""The stage of one cell: a topic with a poison record among answers, its database and account, and its workers."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import asyncpg
from aiokafka.admin import NewTopic

from tests.support import lines, llm_lines, samples
from tests.support.journals import EXPIRE
from tests.support.kafka import admin_of, produce
from tests.support.llm import OPENAI
from worker.adapters.kafka.topics import topic_specs
from worker.app import Worker, open_worker
from worker.core.records import TopicPartition
from worker.embedded.broker import Broker
from worker.embedded.llm_emulator.emulator import LlmEmulator
from worker.settings import Settings

FINISHED = "SELECT answer_id FROM answers UNION SELECT answer_id FROM dead_letters"

CUT_OFF = "SELECT count(*) FROM llm_calls WHERE outcome IN ('intent', 'unknown')"
NOWHERE = "postgresql://127.0.0.1:1/nothing"

PROMPT: Mapping[str, Mapping[str, object]] = {
    # The next worker takes the place of the dead one at once.
    "kafka": {"partitions": 1, "group_instance_id": "worker-0", "poll_timeout_ms": 10, "fetch_max_wait_ms": 10}
    | {"commit_interval_ms": 50},
    "outbox": {"poll_interval_ms": 20},
    "shutdown": {"drain_s": 0.05},
}
"""Pauses of a worker that has nothing to do."""


@dataclass(frozen=True)
class Part:
    """What one worker is given. `answer_ids` are those of the topic's one partition, in order; `dsn` is the database
    itself, whatever the worker has before it.
    """

    settings: Settings
    dsn: str
    answer_ids: Sequence[str]

    def but(self, **sections: Mapping[str, object]) -> "Part":
        """With these settings replaced."""
        return replace(self, settings=self.settings.overridden(sections))


@dataclass(frozen=True)
class Scene:
    """A cell before anything has happened."""

    broker: Broker
    emulator: LlmEmulator | None
    part: Part


async def make_topics(broker: Broker, prefixes: Iterable[str]) -> None:
    """All at once: one after the other they would take a good part of the cells' time."""
    topics = []
    for prefix in prefixes:
        for spec in topic_specs(lines.settings_of(broker, NOWHERE, prefix, kafka={"partitions": 1}).kafka):
            configs = {name: str(value) for name, value in spec.configs.items()}
            topics.append(NewTopic(spec.name, spec.partitions, spec.replication_factor, topic_configs=configs))
    async with admin_of(broker) as admin:
        await admin.create_topics(topics)


async def set_up(
    broker: Broker, dsn: str, prefix: str, emulator: LlmEmulator | None, **sections: Mapping[str, object]
) -> Scene:
    """Three records in the topic of the answers, of which the second can only become a dead letter."""
    given = {name: {**PROMPT.get(name, {}), **sections.get(name, {})} for name in PROMPT.keys() | sections.keys()}
    if emulator is None:
        answers = lines.answers(2)
        settings = lines.settings_of(broker, dsn, prefix, **given)
    else:
        answers = llm_lines.answers(2, sentences=2, sources=2)
        settings = llm_lines.settings_of(broker, dsn, prefix, OPENAI, emulator, **given)
    poison = samples.event_of(samples.answer("poison")) | {"schema_version": 2}
    first, *others = lines.events(answers)
    await produce(broker, settings.kafka.answers_topic, [first, json.dumps(poison).encode(), *others], key=b"k")
    first_id, *other_ids = [answer.key.answer_id for answer in answers]
    return Scene(broker, emulator, Part(settings, dsn, [first_id, "poison", *other_ids]))


@asynccontextmanager
async def watched_worker(part: Part) -> AsyncIterator[Worker]:
    """A worker that ends at a commit past a record that has no outcome in the database at that moment."""
    async with looking_at(part.dsn) as database, open_worker(part.settings) as worker:
        stream: Any = worker.consume._stream
        commit = stream.commit

        async def checked(offsets: Mapping[TopicPartition, int]) -> None:
            finished = {row["answer_id"] for row in await database.fetch(FINISHED)}
            for topic_partition, offset in offsets.items():
                left = set(part.answer_ids[:offset]) - finished
                assert not left, f"{topic_partition} is committed to {offset}, past {left}"
            await commit(offsets)

        stream.commit = checked
        yield worker


async def finish(scene: Scene) -> int:
    """The next worker, until nothing is left; how many calls the one before it had cut off, or given up.

    Nobody waits here for the end of their lives.
    """
    async with looking_at(scene.part.dsn) as database:
        cut_off: int = await database.fetchval(CUT_OFF)
        await database.execute(EXPIRE)
    async with watched_worker(scene.part) as worker:
        await worker.run(asyncio.Event(), until_drained=True)
        await let_go(worker)
    return cut_off


async def let_go(worker: Worker) -> None:
    """Returns once the worker has given every connection back."""
    pool: Any = worker.store.database.engine.pool
    async with asyncio.timeout(10):
        while pool.checkedout():  # noqa: ASYNC110  # the pool tells nobody
            await asyncio.sleep(0.001)


@asynccontextmanager
async def looking_at(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()
