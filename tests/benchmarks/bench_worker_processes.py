"""How throughput grows with 1, 2 and 3 worker processes on one topic, and what the machine has left for a fourth.

Processes as they are run, on Apache Kafka and PostgreSQL with durable commits, with the local judge, which computes,
and with calls to an emulated account, which wait. Broker, database, account and workers share this machine.
"""

import argparse
import asyncio
import json
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median

import asyncpg
import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.console import Console

from tests.benchmarks.__main__ import table_of
from tests.benchmarks.figure import Figure
from tests.benchmarks.line_events import FULL_SIZE
from tests.benchmarks.server_costs import cpu_s
from tests.support.command_line import environment, environment_of, program
from tests.support.databases import Databases
from tests.support.kafka import producer_of
from tests.support.llm_account import LlmAccount, llm_account
from worker.app import ensure_topics
from worker.embedded.apache_kafka import ApacheKafka
from worker.embedded.postgres import PostgresServer
from worker.embedded.postgres_binaries import embedded_binaries, system_binaries
from worker.settings import LogSettings, Settings
from worker.telemetry import configure_logging

WORKERS = (1, 2, 3)
ROUNDS = 3
PARTITIONS = 12
EVENTS = 15_000
"""More than can be settled while is measured."""
CALL_LATENCY_S = 1.0
CALLS_PER_ANSWER = 2
IN_FLIGHT = 24
"""Records of one worker that waits for calls: few enough for three of them to leave the processor idle."""
WARM_UP_S = 5.0
"""After the last of the workers has got its partitions."""
MEASURED_S = 12.0
POLL_INTERVAL_S = 0.1
WAIT_S_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What had been done and used by then; `busy_s` is the processor time of everybody on this machine."""

    at_s: float
    settled: int
    used_s: Mapping[str, float]
    busy_s: float


@dataclass(frozen=True, slots=True)
class Speed:
    """While all were at work; `cores` are those kept busy, by whom, and `others` those of processes not ours."""

    answers_per_s: float
    cores: Mapping[str, float]
    others: float

    @property
    def cores_in_all(self) -> float:
        return sum(self.cores.values())

    @property
    def cpu_ms(self) -> float:
        """Processor time of one answer, over all that take part."""
        return 1_000 * self.cores_in_all / self.answers_per_s


class Machine:
    """One topic of events, the servers, and fresh databases."""

    def __init__(self, broker: ApacheKafka, postgres: PostgresServer, databases: Databases) -> None:
        self._broker = broker
        self._postgres = postgres
        self._databases = databases
        self._topics = {
            "answers_topic": "processes.answers",
            "attributions_topic": "processes.attributions",
            "dead_letter_topic": "processes.dead-letter",
            "partitions": PARTITIONS,
        }
        asyncio.run(self._fill())

    async def _fill(self) -> None:
        settings = Settings().overridden({"kafka": {**self._topics, **self._broker.settings_overrides()}})
        await ensure_topics(settings)
        event = FULL_SIZE.events()
        async with producer_of(self._broker, linger_ms=20) as producer:
            for number in range(EVENTS):
                # Each of its own content: else most would be judged once and copied.
                own = {**json.loads(event(number)), "query": f"question {number}"}
                await producer.send(settings.kafka.answers_topic, json.dumps(own).encode())

    def measure(self, workers: int, account: LlmAccount | None = None) -> Speed:
        """So many workers, from the beginning of the topic, as a group of their own, on an empty database."""
        with self._databases.migrated() as dsn, ExitStack() as stack:
            settings = self._settings(dsn, account)
            running = [stack.enter_context(_worker(settings)) for _ in range(workers)]
            self._await_members(settings.kafka.group_id, workers)
            time.sleep(WARM_UP_S)
            before = self._sample(dsn, running, account)
            time.sleep(MEASURED_S)
            after = self._sample(dsn, running, account)
            if after.settled >= EVENTS or any(process.poll() is not None for process in running):
                raise RuntimeError(f"{after.settled} of {EVENTS} events settled: no more to do, or a worker has ended")
        return _speed(before, after)

    def _await_members(self, group: str, workers: int) -> None:
        """Until each has its part of the partitions."""
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers, "log_level": 3})
        deadline_s = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < deadline_s:
            parts = _parts_of(admin, group)
            if len(parts) == workers and min(parts) >= PARTITIONS // workers:
                return
            time.sleep(POLL_INTERVAL_S)
        raise TimeoutError(f"{workers} workers are not one group after {WAIT_S_MAX:g} s")

    def _sample(self, dsn: str, running: Sequence["subprocess.Popen[bytes]"], account: LlmAccount | None) -> Sample:
        assert self._postgres.pid is not None
        assert self._broker.pid is not None
        pids = {
            "workers": [process.pid for process in running],
            "PostgreSQL": [self._postgres.pid],
            "Kafka": [self._broker.pid],
            **({} if account is None else {"the account": [account.pid]}),
        }
        settled = asyncio.run(_settled(dsn))
        used_s = {name: sum(map(cpu_s, given)) for name, given in pids.items()}
        return Sample(time.monotonic(), settled, used_s, _busy_s())

    def _settings(self, dsn: str, account: LlmAccount | None) -> Settings:
        kafka = {**self._topics, **self._broker.settings_overrides(), "group_id": uuid.uuid4().hex}
        judging = {} if account is None else {**account.settings(), "intake": {"records_max": IN_FLIGHT}}
        return Settings().overridden({"kafka": kafka, "postgres": {"dsn": dsn}, "log": {"format": "json"}, **judging})


@contextmanager
def _worker(settings: Settings) -> Iterator["subprocess.Popen[bytes]"]:
    variables = environment(**environment_of(settings))
    with subprocess.Popen(  # noqa: S603  # our own program
        program("run"), env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def _parts_of(admin: AdminClient, group: str) -> list[int]:
    """How many partitions each member has; none while the broker knows no such group."""
    try:
        members = admin.describe_consumer_groups([group])[group].result().members
    except KafkaException:
        return []
    return [len(member.assignment.topic_partitions) for member in members]


async def _settled(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        count: int = await connection.fetchval("SELECT count(*) FROM answers")
        return count
    finally:
        await connection.close()


def _speed(before: Sample, after: Sample) -> Speed:
    took_s = after.at_s - before.at_s
    cores = {name: (after.used_s[name] - before.used_s[name]) / took_s for name in before.used_s}
    others = (after.busy_s - before.busy_s) / took_s - sum(cores.values())
    return Speed((after.settled - before.settled) / took_s, cores, others)


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


@contextmanager
def machine() -> Iterator[Machine]:
    with ApacheKafka() as broker, PostgresServer(system_binaries() or embedded_binaries()) as postgres:
        databases = Databases(postgres.dsn)
        yield Machine(broker, postgres, databases)
        databases.close()


def run(*, rounds: int = ROUNDS) -> list[Figure]:
    """Some eight minutes."""
    configure_logging(LogSettings(level="error"))
    waiting = f"{IN_FLIGHT} in flight each, {CALLS_PER_ANSWER} calls of {CALL_LATENCY_S:g} s"
    emulated = ("--latency", str(CALL_LATENCY_S), "--judgements", "instant")
    with machine() as running, llm_account(*emulated) as account:
        return [
            *figures("local judge", speeds_of(running, rounds, None)),
            *figures(waiting, speeds_of(running, rounds, account)),
        ]


def speeds_of(running: Machine, rounds: int, account: LlmAccount | None) -> Mapping[int, Sequence[Speed]]:
    """1, 2, 3 workers, and again: a shared machine changes its pace from minute to minute."""
    speeds: dict[int, list[Speed]] = {workers: [] for workers in WORKERS}
    for _ in range(rounds):
        for workers in WORKERS:
            speeds[workers].append(running.measure(workers, account))
    return speeds


def figures(judge: str, speeds: Mapping[int, Sequence[Speed]]) -> list[Figure]:
    """Each beside one worker's in the same round."""
    alone = [speed.answers_per_s for speed in speeds[1]]
    return [_figure(f"{workers} × {judge}", given, alone) for workers, given in speeds.items()]


def _figure(name: str, speeds: Sequence[Speed], alone: Sequence[float]) -> Figure:
    rates = [speed.answers_per_s for speed in speeds]
    growth = median(rate / beside for rate, beside in zip(rates, alone, strict=True))
    return Figure(
        name,
        f"{_spread(rates)} answers/s; {_busy(speeds)}",
        f"{median(alone):.0f} answers/s, one worker",
        growth,
        "told, not aimed for",
        None,
    )


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def _busy(speeds: Sequence[Speed]) -> str:
    parts = ", ".join(f"{name} {median(speed.cores[name] for speed in speeds):.2f}" for name in speeds[0].cores)
    in_all = median(speed.cores_in_all for speed in speeds)
    others = median(speed.others for speed in speeds)
    cost = f"{median(speed.cpu_ms for speed in speeds):.1f} ms of processor each"
    return f"{cost}; of {psutil.cpu_count()} cores {in_all:.2f} at work ({parts}), others {others:.2f}"


def main() -> None:
    """For quick looks: fewer rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    Console().print(table_of(__name__, run(rounds=parser.parse_args().rounds)))


if __name__ == "__main__":
    main()
