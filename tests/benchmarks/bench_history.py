"""Cost per event does not grow with history: saves and looks on an empty database, and on one with months of rows."""

import argparse
import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from statistics import median
from uuid import uuid4

import asyncpg
import uvloop
from rich.console import Console

from tests.benchmarks.__main__ import table_of
from tests.benchmarks.figure import Figure
from tests.benchmarks.history_fill import Originals, fill
from tests.benchmarks.history_looks import DAILY, LOOKS, Seen, day_share, known_in, look_at
from tests.benchmarks.history_saves import TENANT, Computed, Work, open_saving, save_all
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
SLICES = 4
SLICE_ANSWERS = 1_000
BOUGHT_SLICE_ANSWERS = 500
LOOK_ANSWERS = 4_000
ORIGINALS = 64
GOAL = 0.8
LOOK_BLOCKS_MAX = 100
LOOK_RATIO_MAX = 4
"""What a look may read more on a full database: indexes are deeper, and there is one for each month."""

WAL = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"


@dataclass(slots=True)
class Saved:
    """What the slices of one round on one database took, together."""

    answers: int = 0
    took_s: float = 0.0
    server_cpu_s: float = 0.0
    wal_bytes: int = 0

    @property
    def answers_per_s(self) -> float:
        return self.answers / self.took_s

    @property
    def server_cpu_us(self) -> float:
        return self.server_cpu_s / self.answers * 1e6

    @property
    def wal_kb(self) -> float:
        return self.wal_bytes / self.answers / 1e3


class Server:
    """A server with durable commits, and what it does for an answer."""

    def __init__(self, postgres: PostgresServer, databases: Databases) -> None:
        self._postgres = postgres
        self.databases = databases

    def settings(self, dsn: str) -> Settings:
        return Settings().overridden({"postgres": {"dsn": dsn}, "log": {"level": "error"}})

    def save_in_turns(self, empty: str, full: str, slice_answers: int, *, bought: bool) -> tuple[Saved, Saved]:
        """New answers under random ids, slice by slice: a shared machine changes its pace from second to second."""
        # Pages that the copy of a database, or the round before, left dirty would be written during this one.
        self._execute("CHECKPOINT")
        os.sync()
        return uvloop.run(self._save_in_turns(empty, full, slice_answers, bought=bought))

    async def _save_in_turns(self, empty: str, full: str, slice_answers: int, *, bought: bool) -> tuple[Saved, Saved]:
        computed = Computed(self.settings(empty))
        on_empty, on_full = Saved(), Saved()
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(connected(self._postgres.dsn))
            sides = [
                (saved, await stack.enter_async_context(open_saving(self.settings(dsn), computed, remembers=bought)))
                for saved, dsn in ((on_empty, empty), (on_full, full))
            ]
            for number in range(SLICES):
                for saved, saving in sides if number % 2 else reversed(sides):
                    works = computed.work([str(uuid4()) for _ in range(slice_answers)])
                    wal, cpu_before_s = await connection.fetchval(WAL), self._cpu_s()
                    saved.took_s += await save_all(saving, works, bought=bought)
                    saved.server_cpu_s += self._cpu_s() - cpu_before_s
                    saved.wal_bytes += await connection.fetchval(WAL) - wal
                    saved.answers += slice_answers
        return on_empty, on_full

    def fill(self, dsn: str, rows: int, months: int) -> Mapping[str, int]:
        """Copies of answers that were saved here as any answer is."""
        settings = self.settings(dsn)
        computed = Computed(settings)
        self.save(dsn, computed.work([f"original-{number:02d}" for number in range(ORIGINALS)]))
        return asyncio.run(fill(dsn, Originals(TENANT, settings.kafka.answers_topic), rows=rows, months=months))

    def save(self, dsn: str, works: Sequence[Work]) -> None:
        settings = self.settings(dsn)

        async def save() -> None:
            async with open_saving(settings, Computed(settings), remembers=True) as saving:
                await save_all(saving, works, bought=True)

        uvloop.run(save())

    def look(self, dsn: str) -> Mapping[str, Seen]:
        settings = self.settings(dsn)
        computed = Computed(settings)
        # What the saves before left in the queues, and a vacuum that passes by, are no part of a look.
        self._execute("ALTER SYSTEM SET autovacuum = off")
        self._execute("SELECT pg_reload_conf()")
        asyncio.run(_value(dsn, "VACUUM outbox, llm_call_claims"))

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


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def _value(dsn: str, statement: str) -> int:
    async with connected(dsn) as connection:
        value: int = await connection.fetchval(statement)
        return value


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
            *save_figures(running, full, "saves", SLICE_ANSWERS, rounds, bought=False),
            *save_figures(running, full, "saves and two calls", BOUGHT_SLICE_ANSWERS, rounds, bought=True),
            *look_figures(running, full),
        ]


def filled_figure(counts: Mapping[str, int], size_bytes: int, took_s: float) -> Figure:
    rows = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    size = f"{size_bytes / 1e9:.1f} GB, made in {took_s:.0f} s"
    return Figure("the history", f"{sum(counts.values()):,} rows, {size}", rows, None, "", None)


def save_figures(
    running: Server, full: str, name: str, slice_answers: int, rounds: int, *, bought: bool
) -> list[Figure]:
    """Each round on a fresh empty database and on the full one, in turns."""
    pairs: list[tuple[Saved, Saved]] = []
    for _ in range(rounds):
        with running.databases.migrated() as empty:
            pairs.append(running.save_in_turns(empty, full, slice_answers, bought=bought))
    rate = _paired(f"{name}: answers/s", "/s", [(empty.answers_per_s, full.answers_per_s) for empty, full in pairs])
    assert rate.ratio is not None
    return [
        replace(rate, goal=f"≥ {GOAL:g} × the rate when empty", met=rate.ratio >= GOAL),
        _paired(f"{name}: processor time of the server", " µs", [(e.server_cpu_us, f.server_cpu_us) for e, f in pairs]),
        _paired(f"{name}: write-ahead log", " kB", [(e.wal_kb, f.wal_kb) for e, f in pairs]),
    ]


def _paired(name: str, unit: str, pairs: Sequence[tuple[float, float]]) -> Figure:
    """Medians with their spread, and the median of the pairs' ratios with theirs."""
    on_empty, on_full = zip(*pairs, strict=True)
    ratios = [full / empty for empty, full in pairs]
    spread = f"ratios {min(ratios):.2f} to {max(ratios):.2f}"
    return Figure(
        name, f"{_spread(on_full)}{unit}; {spread}", f"{_spread(on_empty)}{unit}, empty", median(ratios), "", None
    )


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):,.4g} ({min(values):,.4g} to {max(values):,.4g})"


def look_figures(running: Server, full: str) -> list[Figure]:
    with running.databases.migrated() as empty:
        running.save(empty, Computed(running.settings(empty)).work([str(uuid4()) for _ in range(LOOK_ANSWERS)]))
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
        f"{empty.blocks:,.0f} blocks, {empty.median_s * 1e3:.1f} ms, {LOOK_ANSWERS:,} answers in all",
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
