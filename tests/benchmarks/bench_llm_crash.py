"""What a crash and a rebalance buy again: workers in processes of their own, killed in mid-run, joined in mid-run.

The account keeps the bill in its own process. Needed are two calls for each answer. At the kill some calls are in
flight: exactly those are made again. (So that nobody waits for the dead worker's intents to end by themselves, they are
made old by hand.)
"""

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.figure import Figure
from tests.benchmarks.line_events import FULL_SIZE
from tests.support import lines
from tests.support.command_line import environment, environment_of, program
from tests.support.databases import Databases
from tests.support.journals import EXPIRE
from tests.support.kafka import produce
from tests.support.llm_account import LlmAccount, llm_account
from worker.app import ensure_topics
from worker.embedded.apache_kafka import ApacheKafka
from worker.embedded.broker import Broker
from worker.embedded.postgres import PostgresServer
from worker.embedded.postgres_binaries import embedded_binaries, system_binaries
from worker.settings import Settings

ANSWERS = 300
NEEDED = 2 * ANSWERS
LATENCY_S = 0.5
CALLS_IN_FLIGHT = 64
IN_MID_RUN = NEEDED // 3
"""Calls on the bill when it happens."""
WAIT_S_MAX = 90.0

UNSETTLED = """
    SELECT count(*) FROM llm_calls c WHERE outcome = 'complete'
    AND NOT EXISTS (SELECT FROM answers a WHERE a.tenant = c.tenant AND a.answer_id = c.answer_id)
"""
"""Journaled, and not yet settled: what a worker without a journal would buy again."""


@dataclass(frozen=True)
class Scene:
    """Answers in a topic of their own, an empty database, and the account."""

    settings: Settings
    dsn: str
    account: LlmAccount

    def value(self, query: str) -> int:
        count: int = asyncio.run(lines.value(self.dsn, query))
        return count

    @contextmanager
    def worker(self) -> Iterator["subprocess.Popen[bytes]"]:
        variables = environment(**environment_of(self.settings))
        with subprocess.Popen(program("run"), env=variables, stderr=subprocess.DEVNULL) as process:  # noqa: S603  # ours
            try:
                yield process
            finally:
                process.kill()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + WAIT_S_MAX
        while not condition():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not within {WAIT_S_MAX:g} s")
            time.sleep(0.05)

    def all_settled(self) -> bool:
        return self.value("SELECT count(*) FROM answers") == ANSWERS

    def calls_made(self) -> int:
        return len(self.account.bill())


def settings_for(broker: Broker, dsn: str, account: LlmAccount, name: str, kafka: Mapping[str, object]) -> Settings:
    sections: dict[str, Any] = {name: dict(values) for name, values in account.settings().items()}
    sections["limiter"] = {"calls_in_flight": CALLS_IN_FLIGHT}
    sections["log"] = {"level": "error"}
    return lines.settings_of(broker, dsn, name, kafka=kafka, **sections)


@contextmanager
def scene(broker: Broker, databases: Databases, name: str, **kafka: object) -> Iterator[Scene]:
    with ExitStack() as stack:
        account = stack.enter_context(llm_account("--latency", str(LATENCY_S), "--judgements", "instant"))
        dsn = stack.enter_context(databases.migrated())
        settings = settings_for(broker, dsn, account, name, kafka)
        asyncio.run(fill(broker, settings))
        yield Scene(settings, dsn, account)


async def fill(broker: Broker, settings: Settings) -> None:
    event = FULL_SIZE.events()
    await ensure_topics(settings)
    # Each of its own content: else they would be judged once and copied.
    events = [{**json.loads(event(number)), "query": f"question {number}"} for number in range(ANSWERS)]
    await produce(broker, settings.kafka.answers_topic, [json.dumps(given).encode() for given in events])


def killed_in_mid_run(scene: Scene) -> Figure:
    with scene.worker() as worker:
        scene.until(lambda: scene.calls_made() >= IN_MID_RUN)
        worker.kill()
        worker.wait()
    intents = asyncio.run(lines.rows(scene.dsn, "SELECT client_request_id FROM llm_calls WHERE outcome = 'intent'"))
    journaled = scene.value(UNSETTLED)
    asyncio.run(lines.rows(scene.dsn, EXPIRE))
    with scene.worker():
        scene.until(scene.all_settled)
    bill = scene.account.bill()
    # An intent whose call had not left yet is on no bill.
    opened = {row["client_request_id"] for row in intents}
    in_flight = sum(line["client_request_id"] in opened for line in bill)
    made = len(bill)
    return Figure(
        name=f"SIGKILL in mid-run of {ANSWERS} answers, {CALLS_IN_FLIGHT} calls at once",
        measured=f"{made} calls made = {NEEDED} needed + {in_flight} in flight at the kill",
        baseline=f"without a journal: {NEEDED} + {in_flight} + {journaled} journaled, not yet settled",
        ratio=made / (NEEDED + in_flight + journaled),
        goal="calls made = needed + in flight at the kill",
        met=made == NEEDED + in_flight and in_flight > 0,
    )


def joined_in_mid_run(scene: Scene) -> Figure:
    with scene.worker():
        scene.until(lambda: scene.calls_made() >= IN_MID_RUN)
        with scene.worker():
            scene.until(scene.all_settled)
            made = scene.calls_made()
    duplicates = scene.value("SELECT count(*) FROM (SELECT call_key FROM llm_calls GROUP BY 1 HAVING count(*) > 1) d")
    return Figure(
        name=f"a second worker joins in mid-run of {ANSWERS} answers, calls outlast the drain",
        measured=f"{made} calls made, {duplicates} of them twice",
        baseline=f"{NEEDED} needed",
        ratio=made / NEEDED,
        goal="nothing is bought twice",
        met=made == NEEDED and not duplicates,
    )


def run() -> list[Figure]:
    """Under a minute and a half."""
    with ApacheKafka() as broker, PostgresServer(system_binaries() or embedded_binaries()) as server:
        databases = Databases(server.dsn)
        with scene(broker, databases, "killed", group_instance_id="worker-0") as killed:
            figures = [killed_in_mid_run(killed)]
        with scene(broker, databases, "joined", rebalance_drain_ms=50) as joined:
            figures.append(joined_in_mid_run(joined))
        databases.close()
    return figures
