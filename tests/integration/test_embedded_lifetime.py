"""The services end with their owner, whichever way and whenever it ends: no process and no directory is left."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.processes import await_that, open_directory, processes_at
from worker.embedded.loopback import answers_kafka
from worker.embedded.tansu import EmbeddedBroker

GONE_TIMEOUT_S = 30.0
OWNER = """
import signal, sys
from worker.embedded.apache_kafka import ApacheKafka
from worker.embedded.postgres import PostgresServer
from worker.embedded.tansu import EmbeddedBroker

broker = ApacheKafka if sys.argv[1] == "apache" else EmbeddedBroker
print("starting", flush=True)
with broker(), PostgresServer():
    print("serving", flush=True)
    signal.pause()
"""
DICE = random.Random(3)
STARTS_WITHIN_S = {"embedded": 1.0, "apache": 4.0}
"""On a quiet machine; the moments are spread over it."""


def moments() -> list[object]:
    runs = [
        *((signal.SIGINT, broker) for broker in ["embedded"] * 6 + ["apache"] * 2),
        *((number, broker) for number in (signal.SIGTERM, signal.SIGKILL) for broker in ["embedded"] * 2 + ["apache"]),
    ]
    return [
        pytest.param(
            number,
            broker,
            moment_s := DICE.uniform(0, STARTS_WITHIN_S[broker]),
            id=f"{number.name}-{broker}-{moment_s:.2f}s",
            marks=[pytest.mark.kafka] if broker == "apache" else [],
        )
        for number, broker in runs
    ]


@contextmanager
def owner(broker: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A script that starts the services, in a process group of its own, as a terminal would have it."""
    environment = {**os.environ, "TMPDIR": str(directory)}  # noqa: TID251  # handed on, not read
    with subprocess.Popen(  # noqa: S603  # our own interpreter and script
        [sys.executable, "-c", OWNER, broker],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def assert_nothing_is_left(directory: Path) -> None:
    await_that(lambda: not processes_at(directory) and not any(directory.iterdir()), timeout_s=GONE_TIMEOUT_S)
    assert processes_at(directory) == []
    assert list(directory.iterdir()) == []


def end_after(process: subprocess.Popen[str], moment_s: float, number: signal.Signals) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "starting\n"
    try:
        process.wait(moment_s)
    except subprocess.TimeoutExpired:
        # To the whole group, as a terminal's Ctrl-C does.
        os.killpg(process.pid, number)
    assert process.wait(GONE_TIMEOUT_S) != 0


@pytest.mark.parametrize(("number", "broker", "moment_s"), moments())
def test_an_owner_that_is_ended_at_any_moment_leaves_nothing(
    number: signal.Signals, broker: str, moment_s: float
) -> None:
    with open_directory() as directory, owner(broker, directory) as process:
        end_after(process, moment_s, number)
        assert_nothing_is_left(directory)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_an_owner_that_is_ended_while_it_serves_leaves_nothing(number: signal.Signals) -> None:
    with open_directory() as directory, owner("embedded", directory) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["starting\n", "serving\n"]
        # Two keepers, the broker, and PostgreSQL with its several processes.
        assert len(processes_at(directory)) > 4

        os.killpg(process.pid, number)
        process.wait(GONE_TIMEOUT_S)

        assert_nothing_is_left(directory)


def test_a_keeper_that_is_killed_itself_takes_its_process_along() -> None:
    with EmbeddedBroker() as broker:
        assert broker.pid is not None
        assert broker._keeper is not None
        served = psutil.Process(broker.pid)
        directory = broker._keeper.directory

        broker._keeper._process.kill()

        assert await_that(lambda: not served.is_running(), timeout_s=GONE_TIMEOUT_S)
    # The limit that its docstring states: nobody is left to remove the directory.
    (directory / "output.log").unlink()
    directory.rmdir()


def test_a_broker_outlives_the_thread_that_started_it() -> None:
    # Linux sends a parent-death signal when the forking *thread* ends, not the process.
    broker = EmbeddedBroker()
    thread = threading.Thread(target=broker.start)
    thread.start()
    thread.join()
    try:
        assert answers_kafka(broker.port)
        assert broker.pid is not None
    finally:
        broker.close()
