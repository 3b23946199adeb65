"""Two hundred answers in flight through the whole LLM judge, each call two seconds long; and what an answer costs us.

The judge as the worker opens it: prompts, limiter, budgets, the journal in PostgreSQL with durable commits, the real
SDK over real sockets to an account in a process of its own. Answers begin one after another, as a stream brings them.
Beside it, in the same run: the same calls by the bare SDK, two after another for each answer, with nothing recorded and
nothing read.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count, cycle

import uvloop
from pydantic import SecretStr

from tests.benchmarks.figure import Figure
from tests.benchmarks.line_events import BODIES, FULL_SIZE
from tests.support.databases import Databases
from tests.support.llm import LIMITS, SECRET, TIMEOUT_S
from tests.support.llm_account import LlmAccount, llm_account
from worker.adapters.llm.open_provider import open_provider
from worker.adapters.llm.tokens import count_tokens
from worker.adapters.postgres.store import open_llm_accounts, open_store
from worker.app.judges import Accounts, open_judge
from worker.codec import decode_answer
from worker.core.asking import Asker, JudgingMethod
from worker.core.fencing import show
from worker.core.llm import CompletionRequest
from worker.core.matrix import cells_of
from worker.core.model import Answer, KeyPoint
from worker.core.records import Record
from worker.embedded.postgres import PostgresServer
from worker.embedded.postgres_binaries import embedded_binaries, system_binaries
from worker.settings import IntakeSettings, LogSettings, Settings
from worker.telemetry import Telemetry, configure_logging

IN_FLIGHT = 200
LATENCY_S = 2.0
CALLS_PER_ANSWER = 2
IDEAL_PER_S = IN_FLIGHT / (CALLS_PER_ANSWER * LATENCY_S)
WARM_UP_S = 8.0
MEASURED_S = 20.0
THROUGHPUT_GOAL = 0.9

_NOW = datetime(2026, 6, 2, tzinfo=UTC)
_EVENT = FULL_SIZE.events()


@dataclass(frozen=True)
class Measured:
    """Answers a second, and processor time of this process for each."""

    answers_per_s: float
    cpu_ms: float


def answer_of(number: int) -> Answer:
    record = Record("answers", 0, number, 0, None, _EVENT(number))
    return decode_answer(record, limits=IntakeSettings(), now=_NOW).answer


async def measure(judge: Callable[[int], Awaitable[object]]) -> Measured:
    """`IN_FLIGHT` answers at every moment; those that end within the measured time count."""
    numbers = count()
    ended = 0

    async def keep_judging(place: int) -> None:
        nonlocal ended
        await asyncio.sleep(place / IDEAL_PER_S)
        while True:
            await judge(next(numbers))
            ended += 1

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(keep_judging(place)) for place in range(IN_FLIGHT)]
        await asyncio.sleep(WARM_UP_S)
        before, began_s, cpu_s = ended, time.perf_counter(), time.process_time()
        await asyncio.sleep(MEASURED_S)
        answers, took_s, cpu_s = ended - before, time.perf_counter() - began_s, time.process_time() - cpu_s
        for task in running:
            task.cancel()
    return Measured(answers / took_s, 1_000 * cpu_s / answers)


async def measure_judge(dsn: str, account: LlmAccount) -> Measured:
    sections = {**account.settings(), "postgres": {"dsn": dsn}, "limiter": {"calls_in_flight": 2 * IN_FLIGHT}}
    settings = Settings().overridden(sections)
    async with open_store(settings, code_version="bench") as store, open_llm_accounts(store, settings) as accounts:
        kept = Accounts(accounts.journal, accounts.budgets, durable=True)
        async with open_judge(settings, Telemetry(), kept) as judge:
            return await measure(lambda number: judge.judge(answer_of(number)))


async def measure_bare(account: LlmAccount) -> Measured:
    """The calls of an answer, made before the clock runs, and nothing else."""
    pairs = cycle([requests_of(answer_of(number)) for number in range(BODIES)])
    async with open_provider("openai", "gpt-4.1-mini", SecretStr("any"), account.base_url, IN_FLIGHT) as provider:

        async def two_calls(_: int) -> None:
            for request in next(pairs):
                await provider.complete(request, client_request_id="bare", timeout_s=TIMEOUT_S)

        return await measure(two_calls)


def requests_of(answer: Answer) -> tuple[CompletionRequest, CompletionRequest]:
    asker = Asker(show(answer, SECRET), JudgingMethod(), LIMITS, count_tokens)
    (scoring,) = asker.score([KeyPoint(answer.text[:200])], cells_of(1, len(answer.sources)))
    return asker.decompose(), scoring.request


def on_the_way(measured: Measured) -> str:
    return f"{measured.answers_per_s:.1f} answers/s, {measured.cpu_ms:.1f} ms CPU each"


async def run_both(dsn: str, account: LlmAccount) -> tuple[Measured, Measured]:
    ours = await measure_judge(dsn, account)
    account.clear()
    return ours, await measure_bare(account)


def run() -> list[Figure]:
    """A little over a minute."""
    configure_logging(LogSettings(level="error"))
    emulated = ("--latency", str(LATENCY_S), "--judgements", "instant")
    with PostgresServer(system_binaries() or embedded_binaries()) as server, llm_account(*emulated) as account:
        databases = Databases(server.dsn)
        with databases.migrated() as dsn:
            ours, bare = uvloop.run(run_both(dsn, account))
        databases.close()
    share = ours.answers_per_s / IDEAL_PER_S
    return [
        Figure(
            name=f"{IN_FLIGHT} answers in flight, {CALLS_PER_ANSWER} calls of {LATENCY_S:g} s each: answers/s",
            measured=on_the_way(ours),
            baseline=f"ideal {IDEAL_PER_S:.1f} answers/s; the bare SDK: {on_the_way(bare)}",
            ratio=share,
            goal=f"≥ {THROUGHPUT_GOAL} of the ideal",
            met=share >= THROUGHPUT_GOAL,
        ),
        Figure(
            name="CPU per answer of 11 KB: prompts, limiter, journal, reading, SDK",
            measured=f"{ours.cpu_ms:.1f} ms",
            baseline=f"the bare SDK: {bare.cpu_ms:.1f} ms",
            ratio=ours.cpu_ms / bare.cpu_ms,
            goal="told, not aimed for",
            met=None,
        ),
    ]
