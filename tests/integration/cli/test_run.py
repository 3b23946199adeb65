"""`attribution-worker run` as a process: what its signals do, and how it refuses to start."""

import asyncio
import json
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.support import lines
from tests.support.command_line import Ran, RunHere, environment, environment_of, program
from tests.support.kafka import committed, producer_of
from tests.support.processes import await_that
from worker.app import ensure_topics
from worker.embedded.broker import Broker
from worker.settings import Settings

pytestmark = pytest.mark.postgres
LEAVES_WITHIN_S = 60.0


class Worker:
    """A worker process; its log is read as it comes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.log: list[dict[str, Any]] = []
        self.stderr = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.stderr += line
            if line.startswith("{"):
                self.log.append(json.loads(line))

    def settled(self) -> int:
        return sum(line["event"] == "record.settled" for line in self.log)

    def until(self, count: int) -> None:
        assert await_that(lambda: self.settled() >= count or self._process.poll() is not None, timeout_s=60)
        assert self._process.poll() is None, self.stderr

    def tell(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> Ran:
        assert self._process.stdout is not None
        stdout = self._process.stdout.read()
        exit_code = self._process.wait(LEAVES_WITHIN_S)
        self._reader.join()
        return Ran(exit_code, stdout, self.stderr)


@contextmanager
def working(settings: Settings, *arguments: str) -> Iterator[Worker]:
    with subprocess.Popen(  # noqa: S603  # our own interpreter and program
        program("run", *arguments),
        env=environment(**environment_of(settings)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        worker = Worker(process)
        try:
            yield worker
        finally:
            process.kill()


@pytest.fixture
def settings(kafka_broker: Broker, postgres_dsn: str, topics_prefix: str) -> Settings:
    return lines.settings_of(kafka_broker, postgres_dsn, topics_prefix, intake={"records_max": 20})


def put_in(broker: Broker, settings: Settings, events: Sequence[bytes]) -> None:
    async def put() -> None:
        await ensure_topics(settings)
        async with producer_of(broker) as producer:
            for event in events:
                await producer.send(settings.kafka.answers_topic, event)
            await producer.flush()

    asyncio.run(put())


def committed_in_all(broker: Broker, settings: Settings) -> int:
    async def offsets() -> int:
        kafka = settings.kafka
        found = [
            await committed(broker, kafka.group_id, kafka.answers_topic, number) for number in range(kafka.partitions)
        ]
        return sum(offset or 0 for offset in found)

    return asyncio.run(offsets())


def user_and_password(dsn: str) -> str:
    return str(urlsplit(dsn).netloc).rpartition("@")[0]


def stored(dsn: str) -> int:
    count: int = asyncio.run(lines.value(dsn, "SELECT count(*) FROM answers"))
    return count


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_finishes_what_is_in_flight_commits_it_and_ends_with_0(
    kafka_broker: Broker, postgres_dsn: str, settings: Settings, number: signal.Signals
) -> None:
    put_in(kafka_broker, settings, lines.events(lines.answers(1_000)))
    with working(settings) as worker:
        worker.until(30)
        worker.tell(number)
        ran = worker.end()
    assert ran.exit_code == 0
    assert ran.stdout == f"Stopped cleanly: {worker.settled()} attributed.\n"
    assert worker.settled() < 1_000, "it was told in the middle"
    assert stored(postgres_dsn) == worker.settled() == committed_in_all(kafka_broker, settings)
    assert "Traceback" not in ran.stderr


def test_until_drained_settles_what_is_there_once_and_ends(
    kafka_broker: Broker, postgres_dsn: str, settings: Settings
) -> None:
    put_in(kafka_broker, settings, [*lines.events(lines.answers(40)), b"nonsense"])
    with working(settings, "--until-drained") as worker:
        first = worker.end()
    assert (first.exit_code, first.stdout) == (0, "Stopped cleanly: 40 attributed, 1 dead_letter.\n")
    assert committed_in_all(kafka_broker, settings) == 41
    assert all({"topic", "partition", "offset"} <= line.keys() for line in worker.log if "outcome" in line)


def test_a_second_signal_leaves_at_once_and_commits_nothing_unfinished(
    kafka_broker: Broker, postgres_dsn: str, settings: Settings
) -> None:
    settings = settings.overridden({"postgres": {"lock_timeout_s": 60}, "shutdown": {"drain_s": 60}})
    put_in(kafka_broker, settings, lines.events(lines.answers(10)))

    async def held() -> asyncpg.Connection:
        connection = await asyncpg.connect(postgres_dsn)
        await connection.execute("BEGIN; LOCK TABLE answers IN ACCESS EXCLUSIVE MODE")
        return connection

    async def waiting() -> int:
        count: int = await lines.value(
            postgres_dsn, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'answers'::regclass"
        )
        return count

    with asyncio.Runner() as runner, working(settings) as worker:
        holder = runner.run(held())
        assert await_that(lambda: runner.run(waiting()) > 0, timeout_s=60), worker.stderr
        worker.tell(signal.SIGTERM)
        assert await_that(lambda: worker._process.poll() is not None, timeout_s=1) is False, "the first one drains"
        worker.tell(signal.SIGTERM)
        ran = worker.end()
        runner.run(holder.close())
    assert ran.exit_code == 1
    assert "Left at once, as asked by a second signal" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert (stored(postgres_dsn), committed_in_all(kafka_broker, settings)) == (0, 0)


def refused(run: RunHere, settings: Settings, **sections: dict[str, object]) -> str:
    ran = run("run", env=environment_of(settings.overridden(sections)))
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "Traceback" not in ran.stderr
    return ran.stderr


def test_missing_topics_are_told_with_the_command_that_makes_them(run: RunHere, settings: Settings) -> None:
    told = refused(run, settings)
    assert "does not exist" in told
    assert "`attribution-worker topics` makes missing topics" in told


def test_missing_tables_are_told_with_the_command_that_makes_them(
    run: RunHere, settings: Settings, empty_postgres_dsn: str
) -> None:
    asyncio.run(ensure_topics(settings))
    told = refused(run, settings, postgres={"dsn": empty_postgres_dsn})
    assert "attribution-worker migrate" in told


def test_a_database_that_is_not_there_is_told(run: RunHere, settings: Settings) -> None:
    asyncio.run(ensure_topics(settings))
    told = refused(run, settings, postgres={"dsn": "postgresql://user:hunter2@127.0.0.1:1/db"})
    assert told.splitlines()[-2].startswith("unavailable: PostgreSQL: ")
    assert told.splitlines()[-1].startswith("Is it running where")
    assert "hunter2" not in told


def test_a_wrong_password_is_told_and_not_shown(run: RunHere, settings: Settings, postgres_dsn: str) -> None:
    asyncio.run(ensure_topics(settings))
    right = user_and_password(postgres_dsn)
    told = refused(run, settings, postgres={"dsn": postgres_dsn.replace(right, "attribution:hunter2")})
    assert "password authentication failed" in told
    assert "check postgres.dsn" in told
    assert "hunter2" not in told


def test_no_line_of_a_whole_run_shows_the_password_or_a_word_of_the_payload(
    kafka_broker: Broker, postgres_dsn: str, settings: Settings
) -> None:
    put_in(kafka_broker, settings, [*lines.events(lines.answers(5)), b'{"answer_id": "a", "query": "secret words"}'])
    debug = settings.overridden({"log": {"level": "debug"}})
    with working(debug, "--until-drained") as worker:
        ran = worker.end()
    assert ran.exit_code == 0
    password = user_and_password(postgres_dsn).partition(":")[2]
    for word in (password, "Tea is a drink", "What is tea", "secret words"):
        assert word not in ran.stdout + ran.stderr
    assert worker.settled() == 6
