"""Cost per event does not grow with history: saves and looks on an empty database, and on one with months of rows."""

import argparse
import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from uuid import uuid4

import asyncpg
import uvloop
from rich.console import Console

from tests.benchmarks.__main__ import table_of
from tests.benchmarks.figure import Figure
from tests.benchmarks.history_fill import Originals, fill
from tests.benchmarks.history_looks import DAILY, LOOKS, Seen, day_share, known_in, look_at
from tests.benchmarks.history_saves import TENANT, Computed, save_all
from tests.benchmarks.server_costs import cpu_s
from tests.support.databases import Databases
from worker.app import ease_garbage_collection
from worker.embedded.postgres import PostgresServer
from worker.embedded.postgres_binaries import embedded_binaries, system_binaries
from worker.settings import LogSettings, Settings
from worker.telemetry import configure_logging

ROWS = 2_000_000
MONTHS = 12
ROUNDS = 5
ANSWERS = 8_000
BOUGHT_ANSWERS = 4_000
ORIGINALS = 64
GOAL = 0.8
LOOK_BLOCKS_MAX = 100
LOOK_RATIO_MAX = 4
"""What a look may read more on a full database: indexes are deeper, and there is one for each month."""

WAL = "SELECT wal_bytes::bigint FROM pg_stat_wal"


@dataclass(frozen=True, slots=True)
class Saved:
    """One round on one database; costs are those of one answer."""

    answers_per_s: float
    server_cpu_us: float
    wal_bytes: float


class Server:
    """A server with durable commits, and what it does for an answer."""

    def __init__(self, postgres: PostgresServer, databases: Databases) -> None:
        self._postgres = postgres
        self.databases = databases

    def settings(self, dsn: str) -> Settings:
        return Settings().overridden({"postgres": {"dsn": dsn}, "log": {"level": "error"}})

    def save(self, dsn: str, count: int, *, bought: bool) -> Saved:
        """So many new answers under random ids."""
        settings = self.settings(dsn)
        computed = Computed(settings)
        works = computed.work([str(uuid4()) for _ in range(count)])
        # Pages that the copy of a database, or the round before, left dirty would be written during this one.
        self._execute("CHECKPOINT")
        os.sync()
        wal, server_cpu_s = self._execute(WAL), self._cpu_s()
        took_s = uvloop.run(save_all(settings, computed, works, bought=bought))
        cpu_us = (self._cpu_s() - server_cpu_s) / count * 1e6
        return Saved(count / took_s, cpu_us, (self._execute(WAL) - wal) / count)

    def fill(self, dsn: str, rows: int, months: int) -> Mapping[str, int]:
        """Copies of answers that were saved here as any answer is."""
        settings = self.settings(dsn)
        computed = Computed(settings)
        works = computed.work([f"original-{number:02d}" for number in range(ORIGINALS)])
        uvloop.run(save_all(settings, computed, works, bought=True))
        topic = settings.kafka.answers_topic
        return asyncio.run(fill(dsn, Originals(TENANT, topic), rows=rows, months=months))

    def look(self, dsn: str) -> Mapping[str, Seen]:
        settings = self.settings(dsn)
        computed = Computed(settings)
        self._execute("ALTER SYSTEM SET autovacuum = off")
        self._execute("SELECT pg_reload_conf()")

        async def look_everywhere() -> Mapping[str, Seen]:
            known = await known_in(dsn)
            looks = {**LOOKS, **DAILY}
            return {name: await look_at(settings, computed, known, look) for name, look in looks.items()}

        return uvloop.run(look_everywhere())

    def size_bytes(self, dsn: str) -> int:
        return asyncio.run(_value(dsn, "SELECT pg_database_size(current_database())"))

    def _execute(self, statement: str) -> int:
        return asyncio.run(_value(self._postgres.dsn, statement))

    def _cpu_s(self) -> float:
        assert self._postgres.pid is not None
        return cpu_s(self._postgres.pid)


async def _value(dsn: str, statement: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        value: int = await connection.fetchval(statement)
        return value
    finally:
        await connection.close()


@contextmanager
def server() -> Iterator[Server]:
    """As it comes: fsync, full pages and synchronous commits on, 128 MB of shared buffers."""
    with PostgresServer(system_binaries() or embedded_binaries()) as postgres:
        databases = Databases(postgres.dsn)
        yield Server(postgres, databases)
        databases.close()


def run(*, rows: int = ROWS, months: int = MONTHS, rounds: int = ROUNDS) -> list[Figure]:
    """Three minutes with two million rows; with twenty million a quarter of an hour, and 25 GB that are gone after."""
    configure_logging(LogSettings(level="error"))
    ease_garbage_collection()
    with server() as running, running.databases.migrated() as full:
        began_s = time.monotonic()
        counts = running.fill(full, rows, months)
        filled = filled_figure(counts, running.size_bytes(full), time.monotonic() - began_s)
        return [
            filled,
            *save_figures(running, full, "saves", ANSWERS, rounds, bought=False),
            *save_figures(running, full, "saves with two calls each", BOUGHT_ANSWERS, rounds, bought=True),
            *look_figures(running, full),
        ]


def filled_figure(counts: Mapping[str, int], size_bytes: int, took_s: float) -> Figure:
    rows = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    size = f"{size_bytes / 1e9:.1f} GB, made in {took_s:.0f} s"
    return Figure("the history", f"{sum(counts.values()):,} rows, {size}", rows, None, "", None)


def save_figures(running: Server, full: str, name: str, count: int, rounds: int, *, bought: bool) -> list[Figure]:
    """Empty and full in turns, each of both first every other time: a shared machine changes its pace."""
    on_empty: list[Saved] = []
    on_full: list[Saved] = []
    for number in range(rounds):
        with running.databases.migrated() as empty:
            order = [(empty, on_empty), (full, on_full)]
            for dsn, results in order if number % 2 == 0 else reversed(order):
                results.append(running.save(dsn, count, bought=bought))
    rates = [(f.answers_per_s, e.answers_per_s) for f, e in zip(on_full, on_empty, strict=True)]
    costs = {
        "processor time of the server for one answer": (
            [(f.server_cpu_us, e.server_cpu_us) for f, e in zip(on_full, on_empty, strict=True)],
            "µs",
        ),
        "write-ahead log of one answer": (
            [(f.wal_bytes, e.wal_bytes) for f, e in zip(on_full, on_empty, strict=True)],
            "bytes",
        ),
    }
    ratio = _ratio(rates)
    return [
        Figure(
            f"{name}: answers/s",
            _median(rates, 0, "/s"),
            _median(rates, 1, "/s, empty"),
            ratio,
            f"≥ {GOAL:g} × the rate when empty",
            ratio >= GOAL,
        ),
        *(
            Figure(
                f"{name}: {what}",
                _median(pairs, 0, f" {unit}"),
                _median(pairs, 1, f" {unit}, empty"),
                _ratio(pairs),
                "",
                None,
            )
            for what, (pairs, unit) in costs.items()
        ),
    ]


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return median(full / empty for full, empty in pairs)


def _median(pairs: Sequence[tuple[float, float]], side: int, unit: str) -> str:
    values = [pair[side] for pair in pairs]
    return f"{median(values):,.0f}{unit} ({min(values):,.0f} to {max(values):,.0f})"


def look_figures(running: Server, full: str) -> list[Figure]:
    with running.databases.migrated() as empty:
        running.save(empty, ANSWERS, bought=True)
        baseline = running.look(empty)
    seen = running.look(full)
    known = asyncio.run(known_in(full))
    share = asyncio.run(day_share(full, known.day))
    all_blocks = running.size_bytes(full) / 8_192
    return [_look_figure(name, seen[name], baseline[name]) for name in LOOKS] + [
        _daily_figure(name, seen[name], all_blocks, share) for name in DAILY
    ]


def _look_figure(name: str, seen: Seen, empty: Seen) -> Figure:
    return Figure(
        f"look: {name}",
        f"{seen.blocks:,.0f} blocks, {seen.median_s * 1e3:.1f} ms",
        f"{empty.blocks:,.0f} blocks, {empty.median_s * 1e3:.1f} ms, {ANSWERS:,} answers in all",
        seen.blocks / empty.blocks if empty.blocks else None,
        f"≤ {LOOK_RATIO_MAX} × and {LOOK_BLOCKS_MAX} blocks",
        seen.blocks <= LOOK_RATIO_MAX * empty.blocks + LOOK_BLOCKS_MAX,
    )


def _daily_figure(name: str, seen: Seen, all_blocks: float, share: float) -> Figure:
    return Figure(
        f"report: {name}",
        f"{seen.blocks:,.0f} blocks, {seen.median_s * 1e3:.0f} ms",
        f"{all_blocks:,.0f} blocks in all, {share:.2%} of the answers on that day",
        seen.blocks / all_blocks,
        "",
        None,
    )


def main() -> None:
    """For quick looks: fewer rows, fewer rounds; and for the figure that counts, twenty million rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--months", type=int, default=MONTHS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    Console().print(table_of(__name__, run(rows=given.rows, months=given.months, rounds=given.rounds)))


if __name__ == "__main__":
    main()
