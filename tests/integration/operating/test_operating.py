"""A whole worker as an on-call engineer meets it: over HTTP, on a real Kafka and a real PostgreSQL."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from tests.fakes.judge import FakeJudge
from tests.support import lines
from tests.support.conditions import until, until_equal
from tests.support.http import Response, request
from tests.support.kafka import produce
from worker.adapters.postgres.migrate import migrate_database
from worker.app import Worker, ensure_topics, open_worker
from worker.embedded.broker import Broker
from worker.embedded.postgres import PostgresServer
from worker.embedded.postgres_binaries import embedded_binaries, system_binaries
from worker.errors import FatalError
from worker.settings import PREFIX, Settings
from worker.telemetry import METRICS

HTTP = {"enabled": True, "port": 0, "look_interval_s": 0.1}


async def ask(worker: Worker, path: str) -> Response:
    await until(lambda: worker.observing.port is not None)
    assert worker.observing.port is not None
    return await request(worker.observing.port, path)


def samples_of(page: Response) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page.text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@asynccontextmanager
async def working(settings: Settings) -> AsyncIterator[Worker]:
    async with open_worker(settings, FakeJudge()) as worker, asyncio.TaskGroup() as tasks:
        stop = asyncio.Event()
        tasks.create_task(worker.run(stop))
        yield worker
        stop.set()


async def test_a_working_worker_is_live_ready_and_measured(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    settings = lines.settings_of(kafka_broker, postgres_dsn, topics_prefix, http=HTTP)
    await ensure_topics(settings)
    await produce(kafka_broker, settings.kafka.answers_topic, lines.events(lines.answers(20)))
    async with working(settings) as worker:

        async def status(path: str) -> int:
            return (await ask(worker, path)).status

        async def committed() -> float:
            offsets = samples_of(await ask(worker, "/metrics")).get("attribution_partition_offset", [])
            return sum(value for labels, value in offsets if labels["position"] == "committed")

        assert await status("/livez") == 200, "before it has joined its group too"
        await until_equal(lambda: status("/readyz"), 200)
        await until_equal(committed, 20)
        await until_equal(lambda: lines.value(postgres_dsn, "SELECT count(*) FROM outbox"), 0)
        page = await ask(worker, "/metrics")
        port = worker.observing.port

    measured = samples_of(page)
    assert ({"outcome": "attributed"}, 20.0) in measured["attribution_records_total"]
    assert {stage["stage"]: count for stage, count in measured["attribution_stage_seconds_count"]} == dict.fromkeys(
        ("decode", "find", "judge", "credit", "save"), 20.0
    )
    assert sum(value for _, value in measured["attribution_partition_lag_records"]) == 0
    assert measured["attribution_messages_published_total"] == [({}, 20.0)]
    assert measured["attribution_assigned_partitions"] == [({}, 3.0)]
    assert ({"state": "running"}, 1.0) in measured["attribution_worker_state"]
    listed = {name for spec in METRICS for name in spec.series}
    assert {name for name in measured if not name.endswith("_created")} <= listed
    assert port is not None
    with pytest.raises(ConnectionRefusedError):
        await request(port, "/livez")


async def test_a_database_that_goes_away_makes_not_ready_and_never_a_restart(
    kafka_broker: Broker, topics_prefix: str
) -> None:
    with PostgresServer(system_binaries() or embedded_binaries()) as server:
        settings = lines.settings_of(kafka_broker, server.dsn, topics_prefix, http=HTTP)
        await ensure_topics(settings)
        await migrate_database(settings.postgres)
        async with working(settings) as worker:

            async def ready() -> int:
                return (await ask(worker, "/readyz")).status

            await until_equal(ready, 200)
            await asyncio.to_thread(server.stop)
            await until_equal(ready, 503)
            failed = (await ask(worker, "/readyz")).json()["checks"]
            assert [name for name, check in failed.items() if not check["ok"]] == ["database"]
            assert (await ask(worker, "/livez")).status == 200
            assert samples_of(await ask(worker, "/metrics"))["attribution_database_reachable"] == [({}, 0.0)]
            await asyncio.to_thread(server.start)
            await until_equal(ready, 200)


async def test_a_worker_whose_port_is_taken_says_so_and_starts_nothing(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    first = lines.settings_of(kafka_broker, postgres_dsn, topics_prefix, http=HTTP)
    await ensure_topics(first)
    async with working(first) as worker:
        await until(lambda: worker.observing.port is not None)
        second = first.overridden({"http": {"port": worker.observing.port}})
        with pytest.raises(FatalError, match="ATTRIBUTION_HTTP__PORT"):
            await lines.run_until_drained(second)


def environment_of(settings: Settings) -> dict[str, str]:
    """The same settings, as a process is given them."""
    given = settings.model_dump(exclude_unset=True)
    variables = dict(os.environ)  # noqa: TID251  # what any child needs
    for section in ("kafka", "postgres", "http", "outbox"):
        for name, value in given[section].items():
            told = value.get_secret_value() if isinstance(value, SecretStr) else value
            if told is not None:
                variables[f"{PREFIX}{section}__{name}".upper()] = str(told)
    return variables | {f"{PREFIX}LOG__FORMAT": "json"}


async def lines_of(process: Process) -> AsyncIterator[dict[str, object]]:
    assert process.stderr is not None
    async for line in process.stderr:
        yield json.loads(line)


async def test_the_command_logs_one_json_line_per_record_and_serves_until_it_is_told_to_stop(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    settings = lines.settings_of(kafka_broker, postgres_dsn, topics_prefix, http=HTTP)
    await ensure_topics(settings)
    await produce(kafka_broker, settings.kafka.answers_topic, lines.events(lines.answers(10)))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "worker", "run", env=environment_of(settings), stdout=PIPE, stderr=PIPE
    )
    try:
        logged: list[dict[str, object]] = []
        async with asyncio.timeout(60):
            async for line in lines_of(process):
                logged.append(line)
                if (
                    line["event"] == "record.settled"
                    and sum(kept["event"] == "record.settled" for kept in logged) == 10
                ):
                    [served] = [kept for kept in logged if kept["event"] == "http.served"]
                    port = served["port"]
                    assert isinstance(port, int)
                    assert (await request(port, "/livez")).status == 200
                    process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    settled = [line for line in logged if line["event"] == "record.settled"]
    assert Counter(line["answer_id"] for line in settled) == Counter(f"a-{number}" for number in range(10))
    assert {line["level"] for line in settled} == {"info"}
    assert not [line for line in logged if "tea is a drink" in json.dumps(line).lower()], "no payload"
