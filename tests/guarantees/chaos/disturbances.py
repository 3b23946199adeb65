"""What a campaign does to its workers and services: one round each, from a seed."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import asyncpg

from tests.guarantees.chaos.fleet import Fleet
from tests.guarantees.chaos.services import SESSION_TIMEOUT_S, Services
from tests.guarantees.chaos.watch import UNREACHABLE
from worker.embedded.server import Server

CUT_CONNECTIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
CUT_COMMITTING = CUT_CONNECTIONS + " AND state = 'active' AND query ILIKE 'COMMIT%'"


@dataclass(frozen=True)
class Scene:
    services: Services
    fleet: Fleet
    chance: random.Random

    def somebody(self) -> int:
        return self.chance.choice(self.fleet.places)

    async def pause(self, shortest_s: float, longest_s: float) -> None:
        await asyncio.sleep(self.chance.uniform(shortest_s, longest_s))


class Disturbance(Protocol):
    every_records: int
    """So many are settled between two strikes, on average: a slow machine is struck more slowly."""

    async def strike(self, scene: Scene) -> None:
        """One round; returns with everything up again."""
        ...


class RollingRestart:
    """Each worker in its turn told to stop, and started again."""

    every_records = 225

    async def strike(self, scene: Scene) -> None:
        for number in scene.fleet.places:
            await scene.fleet.restart(number)
            await scene.pause(0.0, 1.0)


class Kills:
    """SIGKILL, at any moment."""

    every_records = 80

    async def strike(self, scene: Scene) -> None:
        scene.fleet.kill(scene.somebody())


class CutConnections:
    """Backends terminated, those that are committing first of all."""

    every_records = 25

    async def strike(self, scene: Scene) -> None:
        with suppress(*UNREACHABLE):
            connection = await asyncpg.connect(scene.services.database.dsn)
            try:
                for _ in range(scene.chance.randint(5, 40)):
                    await connection.execute(CUT_COMMITTING)
                    await asyncio.sleep(0.005)
                await connection.execute(CUT_CONNECTIONS)
            finally:
                await connection.close()


class DatabaseRestart:
    """Stopped in order or crashed, away for a moment, and back."""

    every_records = 125

    async def strike(self, scene: Scene) -> None:
        await _restart(scene.services.database, scene)


class BrokerRestart:
    """Stopped in order or crashed, away for a moment, and back."""

    every_records = 200

    async def strike(self, scene: Scene) -> None:
        await _restart(scene.services.broker, scene)


async def _restart(server: Server, scene: Scene) -> None:
    await asyncio.to_thread(scene.chance.choice((server.stop, server.kill)))
    await scene.pause(0.0, 2.0)
    await asyncio.to_thread(server.start)


class Zombies:
    """A worker frozen past its session and woken; half of the time another has taken its place meanwhile."""

    every_records = 100

    async def strike(self, scene: Scene) -> None:
        number = scene.somebody()
        scene.fleet.freeze(number)
        frozen = scene.fleet.replace(number) if scene.chance.random() < 0.5 else None
        await scene.pause(1.2 * SESSION_TIMEOUT_S, 2.5 * SESSION_TIMEOUT_S)
        if frozen is None:
            scene.fleet.wake(number)
        else:
            scene.fleet.wake_process(frozen)


@dataclass(frozen=True)
class Scenario:
    """`faults` are the LLM account's, as its command takes them."""

    name: str
    disturbances: Sequence[Disturbance]
    faults: str = ""


REFUSALS = "rate_limited=0.02,rate_limited_1=0.02,overloaded=0.02,server_error=0.03,unavailable=0.02"
LOST = "reset_before_work=0.01,reset_after_work=0.01,truncated_body=0.01,silence=0.004,empty_body=0.01"
SPOILT = (
    "fenced=0.02,amid_prose=0.02,message_cut=0.02,missing_cells=0.03,out_of_range=0.02,nan_scores=0.02,"
    "invented_quotes=0.02,wrong_ids=0.02,finish_length=0.02,finish_refusal=0.01,usage_missing=0.01,nul=0.01,"
    "duplicate_cells=0.01,message_empty=0.01"
)
STOPPING = "unauthorized=0.001,forbidden=0.001"
EVERY_KIND = f"{REFUSALS},{LOST},{SPOILT},{STOPPING}"

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("rolling-restart", [RollingRestart()]),
        Scenario("kills", [Kills()]),
        Scenario("database", [CutConnections(), DatabaseRestart()]),
        Scenario("broker", [BrokerRestart()]),
        Scenario("llm", [], EVERY_KIND),
        Scenario("zombies", [Zombies()]),
        Scenario(
            "all-at-once",
            [RollingRestart(), Kills(), CutConnections(), DatabaseRestart(), BrokerRestart(), Zombies()],
            EVERY_KIND,
        ),
    )
}
