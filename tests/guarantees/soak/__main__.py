"""`make soak`: a worker at rest, at work, and at rest again, an hour and more; then what grew.

python -m tests.guarantees.soak --minutes 30
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from threading import Thread

from confluent_kafka import Producer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tests.guarantees.chaos.answer_stream import AnswerStream
from tests.guarantees.soak.growth import Phase, Sample, findings
from tests.support import lines
from tests.support.command_line import environment, environment_of
from tests.support.llm_account import llm_account
from worker.app import ensure_topics, migrate
from worker.embedded.apache_kafka import ApacheKafka
from worker.embedded.postgres import PostgresServer
from worker.embedded.postgres_binaries import embedded_binaries, system_binaries
from worker.settings import Settings

PARTITIONS = 6
ANSWERS_PER_S = 20.0
RUSH = 300
"""Answers at once, at the very beginning."""
QUIET_S = 10.0
"""Without another record settled: what was in flight has ended."""
LEVELS = "▁▂▃▄▅▆▇█"
PLOT_COLUMNS = 60

console = Console(highlight=False, soft_wrap=True)


class Watched:
    """The worker, and every sample that it has given so far."""

    def __init__(self, settings: Settings, log: str) -> None:
        command = [sys.executable, "-m", "tests.guarantees.soak.watched_worker"]
        with open(log, "wb") as log_file:  # noqa: PTH123  # handed to the process
            self._process = subprocess.Popen(  # noqa: S603  # our own module
                command, env=environment(**environment_of(settings)), stdout=subprocess.PIPE, stderr=log_file, text=True
            )
        self.samples: list[Sample] = []
        self._reading = Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.samples.append(Sample(**json.loads(line)))

    def phase(self, name: str, minutes: float, progress: Progress, work: Iterator[None] | None = None) -> Phase:
        """Everything sampled in these minutes; `work` is gone on with meanwhile."""
        task = progress.add_task(name, total=minutes * 60)
        first, began_s = len(self.samples), time.monotonic()
        while (gone_s := time.monotonic() - began_s) < minutes * 60:
            if self._process.poll() is not None:
                raise RuntimeError(f"the worker ended with {self._process.returncode}")
            progress.update(task, completed=gone_s)
            if work is None:
                time.sleep(0.5)
            else:
                next(work)
        return Phase(name, self.samples[first:])

    def until_settled(self) -> None:
        """What was in flight ends before a rest begins."""
        settled, since_s = -1, time.monotonic()
        while time.monotonic() - since_s < QUIET_S:
            time.sleep(0.5)
            if self.samples[-1].records_settled != settled:
                settled, since_s = self.samples[-1].records_settled, time.monotonic()

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(timeout=60)


def sending(bootstrap_servers: str, topic: str) -> Iterator[None]:
    """A rush of answers, then answers at their pace, for ever: each `next` sends one when it is due."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "log_level": 0})
    due_s = time.monotonic()
    for sent, to_send in enumerate(AnswerStream(1, count=sys.maxsize, partitions=PARTITIONS), 1):
        producer.produce(topic, to_send.value, key=b"k", partition=to_send.partition)
        producer.poll(0)
        if sent > RUSH:
            # What was not sent while nobody asked is not made up for.
            due_s = max(due_s + 1 / ANSWERS_PER_S, time.monotonic())
            time.sleep(max(0.0, due_s - time.monotonic()))
        yield


def plot(values: Sequence[float]) -> str:
    """Levels between the least and the most, as wide as a line."""
    step = max(1, len(values) // PLOT_COLUMNS)
    shown = [max(values[at : at + step]) for at in range(0, len(values), step)]
    least, most = min(values), max(values)
    return "".join(LEVELS[round((value - least) / ((most - least) or 1) * (len(LEVELS) - 1))] for value in shown)


def table_of(phases: Sequence[Phase]) -> Table:
    table = Table(title="a worker over time", title_justify="left")
    for heading in ("phase", "minutes", "settled", "RSS, MiB", "MiB/hour", "files", "tasks", "in use"):
        table.add_column(heading, no_wrap=True)
    for phase in phases:
        first, last = phase.samples[0], phase.samples[-1]
        table.add_row(
            phase.name,
            f"{(last.at_s - first.at_s) / 60:.1f}",
            f"{last.records_settled - first.records_settled:,}",
            f"{first.rss_bytes / 2**20:.0f} → {last.rss_bytes / 2**20:.0f}",
            f"{phase.rss_bytes_per_hour / 2**20:+.1f}",
            f"{first.open_files} → {last.open_files}",
            f"{first.tasks} → {last.tasks}",
            f"{min(sample.connections_in_use for sample in phase.samples)}",
        )
    return table


async def prepare(settings: Settings) -> None:
    await migrate(settings)
    await ensure_topics(settings)


def main(given: list[str]) -> int:
    """0 where nothing grew, 1 where something did."""
    parser = argparse.ArgumentParser(prog="python -m tests.guarantees.soak", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="of rest, and again of work (30)")
    minutes = parser.parse_args(given).minutes
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with ExitStack() as stack:
        account = stack.enter_context(llm_account("--latency", "lognormal:0.2,0.5"))
        broker = stack.enter_context(ApacheKafka())
        database = stack.enter_context(PostgresServer(system_binaries() or embedded_binaries()))
        sections = {name: dict(values) for name, values in account.settings().items()}
        sections |= {"dead_letters": {"ratio_max": 1.0}, "log": {"level": "warning", "format": "json"}}
        settings = lines.settings_of(broker, database.dsn, "soak", kafka={"partitions": PARTITIONS}, **sections)
        asyncio.run(prepare(settings))
        with tempfile.NamedTemporaryFile(prefix="soak-", suffix=".log", delete=False) as log:
            console.print(f"its log: {log.name}")
        watched = Watched(settings, log.name)
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            work = sending(broker.bootstrap_servers, settings.kafka.answers_topic)
            # Pools and caches fill once; what they hold then is no leak.
            watched.phase("warming up", max(1.0, minutes / 10), progress, work)
            watched.until_settled()
            before = watched.phase("at rest", minutes, progress)
            loaded = watched.phase("at work", minutes, progress, work)
            watched.until_settled()
            after = watched.phase("at rest again", minutes / 3, progress)
        code = watched.stop()
    console.print(table_of([before, loaded, after]))
    for phase in (before, loaded, after):
        console.print(f"  RSS {phase.name:14} {plot([sample.rss_bytes for sample in phase.samples])}")
    found = [*findings(before, loaded, after), *([f"the worker ended with {code}"] if code else [])]
    console.print("\n".join(f"[red]{finding}[/]" for finding in found) or "[green]nothing grew[/]")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
