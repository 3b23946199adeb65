"""The stage of one cell: a topic with a poison record among answers, its database and account, and its workers."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import asyncpg

from tests.support import lines, llm_lines, samples
from tests.support.kafka import produce
from tests.support.llm import OPENAI
from worker.app import Worker, ensure_topics, open_worker
from worker.core.records import TopicPartition
from worker.embedded.broker import Broker
from worker.embedded.llm_emulator.emulator import LlmEmulator
from worker.settings import Settings

FINISHED = "SELECT answer_id FROM answers UNION SELECT answer_id FROM dead_letters"

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


async def set_up(
    broker: Broker, dsn: str, prefix: str, emulator: LlmEmulator | None, **sections: Mapping[str, object]
) -> Scene:
    """Topics, and four records in the one of the answers: the second can only become a dead letter."""
    given = {name: {**PROMPT.get(name, {}), **sections.get(name, {})} for name in PROMPT.keys() | sections.keys()}
    if emulator is None:
        answers = lines.answers(3)
        settings = lines.settings_of(broker, dsn, prefix, **given)
    else:
        answers = llm_lines.answers(3, sentences=2, sources=2)
        settings = llm_lines.settings_of(broker, dsn, prefix, OPENAI, emulator, **given)
    poison = samples.event_of(samples.answer("poison")) | {"schema_version": 2}
    first, *others = lines.events(answers)
    await ensure_topics(settings)
    await produce(broker, settings.kafka.answers_topic, [first, json.dumps(poison).encode(), *others], key=b"k")
    first_id, *other_ids = [answer.key.answer_id for answer in answers]
    return Scene(broker, emulator, Part(settings, dsn, [first_id, "poison", *other_ids]))


@asynccontextmanager
async def watched_worker(part: Part) -> AsyncIterator[Worker]:
    """A worker that ends at a commit past a record that has no outcome in the database at that moment."""
    async with open_worker(part.settings) as worker:
        stream: Any = worker.consume._stream
        commit = stream.commit

        async def checked(offsets: Mapping[TopicPartition, int]) -> None:
            finished = {row["answer_id"] for row in await lines.rows(part.dsn, FINISHED)}
            for topic_partition, offset in offsets.items():
                left = set(part.answer_ids[:offset]) - finished
                assert not left, f"{topic_partition} is committed to {offset}, past {left}"
            await commit(offsets)

        stream.commit = checked
        # aiokafka loses, unclosed, a connection that it is making when it is cancelled.
        await worker.relay._publisher._connected()  # type: ignore[attr-defined]  # of KafkaPublisher
        yield worker


async def let_go(worker: Worker) -> None:
    """Returns once the worker has given every connection back."""
    pool: Any = worker.store.database.engine.pool
    async with asyncio.timeout(10):
        while pool.checkedout():  # noqa: ASYNC110  # the pool tells nobody
            await asyncio.sleep(0.001)


async def rows_of(dsn: str, queries: Mapping[str, str]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Of several queries on one connection."""
    connection = await asyncpg.connect(dsn)
    try:
        return {name: [dict(row) for row in await connection.fetch(query)] for name, query in queries.items()}
    finally:
        await connection.close()
