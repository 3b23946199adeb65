"""Apache Kafka and PostgreSQL with durable commits, and measured processes on them."""

import asyncio
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import asyncpg
from confluent_kafka import Producer

from tests.benchmarks.line_events import EventShape, answer_id_of
from tests.benchmarks.line_task import Result, Task
from tests.support.databases import Databases
from worker.app import ensure_topics
from worker.embedded.apache_kafka import ApacheKafka
from worker.embedded.broker import Broker
from worker.embedded.postgres import PostgresServer
from worker.embedded.postgres_binaries import embedded_binaries, system_binaries
from worker.settings import Settings

ERROR_TAIL_CHARACTERS = 2_000
LOCAL_QUEUE_KBYTES = 256 * 2**10


class Services:
    """A broker with topics by event shape, and a fresh database for every run."""

    def __init__(self, broker: Broker, databases: Databases) -> None:
        self._broker = broker
        self._databases = databases

    def fill(self, shape: EventShape, events: int) -> Mapping[str, object]:
        """Topics with the first `events` events of this shape; returns the Kafka settings that name them."""
        name = uuid.uuid4().hex
        kafka = {
            **self._broker.settings_overrides(),
            "answers_topic": f"{name}.answers",
            "attributions_topic": f"{name}.attributions",
            "dead_letter_topic": f"{name}.dead-letter",
        }
        asyncio.run(_ensure_topics(Settings().overridden({"kafka": kafka})))
        self._produce(f"{name}.answers", shape, events)
        return kafka

    def _produce(self, topic: str, shape: EventShape, events: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._broker.bootstrap_servers,
                "queue.buffering.max.kbytes": LOCAL_QUEUE_KBYTES,
                "queue.buffering.max.messages": 0,
                "linger.ms": 20,
            }
        )
        event = shape.events()
        for number in range(events):
            _produce_one(producer, topic, answer_id_of(number).encode(), event(number))
        if producer.flush(60.0):
            raise TimeoutError(f"{topic} could not be filled")

    def measure(self, task: Task, kafka: Mapping[str, object]) -> Result:
        """The task in a process of its own, as a group of its own, on an empty database."""
        with self._databases.migrated() as dsn:
            # Pages left dirty by the copy, or by filling the topic, would be written during the run.
            asyncio.run(_execute(dsn, "CHECKPOINT"))
            os.sync()
            overrides = {
                **task.overrides,
                "kafka": {**kafka, "group_id": uuid.uuid4().hex},
                "postgres": {**task.overrides.get("postgres", {}), "dsn": dsn},
                "log": {"format": "json"},
            }
            result = Result.decode(_output_of(replace(task, overrides=overrides)))
        if result.events != task.events:
            raise RuntimeError(f"{task.what}: {result.events} of {task.events} events")
        return result


def _output_of(task: Task) -> str:
    command = [sys.executable, "-m", "tests.benchmarks.line_process"]
    # The log goes to a file, as a container's does.
    with tempfile.TemporaryFile("w+") as log:
        run = subprocess.run(command, input=task.encode(), stdout=subprocess.PIPE, stderr=log, text=True, check=False)  # noqa: S603  # our own module
        if run.returncode:
            log.seek(0)
            raise RuntimeError(f"{task.what} failed:\n{log.read()[-ERROR_TAIL_CHARACTERS:]}")
    return run.stdout


def _produce_one(producer: Any, topic: str, key: bytes, value: bytes) -> None:
    while True:
        try:
            producer.produce(topic, value, key=key)
        except BufferError:
            producer.poll(0.1)
        else:
            return


async def _ensure_topics(settings: Settings) -> None:
    await ensure_topics(settings)


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@contextmanager
def services() -> Iterator[Services]:
    """Both servers as they come, which is with durable commits."""
    with ApacheKafka() as broker, PostgresServer(system_binaries() or embedded_binaries()) as server:
        databases = Databases(server.dsn)
        yield Services(broker, databases)
        databases.close()
