"""What was paid for is used: after a crash, after a redelivery, by the next owner of a partition."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support import lines, llm_lines
from tests.support.command_line import environment, environment_of, program
from tests.support.conditions import until, until_equal
from tests.support.journals import EXPIRE
from tests.support.kafka import produce
from tests.support.llm import OPENAI, Dialect
from worker.app import ensure_topics, open_worker
from worker.core.model import AnswerKey
from worker.core.outcome import Outcome
from worker.embedded.broker import Broker
from worker.embedded.llm_emulator.chances import Fixed
from worker.embedded.llm_emulator.emulator import LlmEmulator
from worker.embedded.llm_emulator.options import EmulatorOptions
from worker.settings import Settings

pytestmark = pytest.mark.postgres

CALLS_PER_ANSWER = 2
SETTLED = "SELECT count(*) FROM answers"


@asynccontextmanager
async def worker_process(settings: Settings) -> AsyncIterator[asyncio.subprocess.Process]:
    variables = environment(**environment_of(settings))
    process = await asyncio.create_subprocess_exec(*program("run"), env=variables)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


CLAIMS = "SELECT count(*) FROM llm_call_claims"


async def test_a_worker_killed_in_mid_run_buys_again_what_was_in_flight_and_nothing_else(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str, dialect: Dialect
) -> None:
    answers = llm_lines.answers(40)

    async def some_are_settled() -> bool:
        return bool(await lines.value(postgres_dsn, SETTLED))

    looks: list[tuple[int, int, int]] = []

    async def nothing_moves() -> bool:
        """Held long enough that every response is journaled, and each call that has none has reached the provider."""
        looks.append((emulator.in_flight, await lines.value(postgres_dsn, CLAIMS), len(emulator.bill.lines)))
        last = set(looks[-15:])
        return len(looks) >= 15 and len(last) == 1 and looks[-1][:2] == (8, 8)

    async with LlmEmulator(EmulatorOptions(latency_s=Fixed(0.05))) as emulator:
        settings = llm_lines.settings_of(
            kafka_broker,
            postgres_dsn,
            topics_prefix,
            dialect,
            emulator,
            # Its successor takes the place of the dead one at once.
            kafka={"group_instance_id": "worker-0"},
            limiter={"calls_in_flight": 8},
            intake={"records_max": 16},
        )
        await ensure_topics(settings)
        await produce(kafka_broker, settings.kafka.answers_topic, lines.events(answers))
        async with worker_process(settings) as worker:
            await until_equal(some_are_settled, expected=True, timeout_s=60)
            emulator.hold()
            await until_equal(nothing_moves, expected=True, timeout_s=60)
            worker.kill()
            await worker.wait()
        in_flight = [line.client_request_id or "" for line in emulator.bill.lines[-8:]]
        settled_before = await lines.value(postgres_dsn, SETTLED)
        assert 0 < settled_before < 40
        emulator.release()
        connection_rows = await lines.rows(postgres_dsn, f"{EXPIRE} RETURNING call_id")
        summary = await llm_lines.run_until_drained(settings)
        bill = emulator.bill.lines
    assert len(connection_rows) == 8, "one claim for each call in flight, and no other"
    assert summary.outcomes[Outcome.ATTRIBUTED] >= 40 - settled_before
    assert len(bill) == 40 * CALLS_PER_ANSWER + 8
    await llm_lines.assert_each_has_one_outcome(postgres_dsn, answers)
    await llm_lines.assert_conserved(postgres_dsn, bill, cut_off=in_flight)
    await llm_lines.assert_nobody_is_paid_from_an_error(postgres_dsn, answers)


async def test_a_rebalance_in_mid_run_buys_nothing_twice(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    """Calls outlast the drain: the next owner of their partitions waits for them, and uses what they bring."""
    answers = llm_lines.answers(30)
    async with LlmEmulator() as emulator:
        settings = llm_lines.settings_of(
            kafka_broker, postgres_dsn, topics_prefix, OPENAI, emulator, kafka={"rebalance_drain_ms": 50}
        )
        await ensure_topics(settings)
        await produce(kafka_broker, settings.kafka.answers_topic, lines.events(answers))
        emulator.hold()
        async with open_worker(settings) as first, open_worker(settings) as second, asyncio.TaskGroup() as tasks:
            stops = asyncio.Event(), asyncio.Event()
            runs = [tasks.create_task(first.run(stops[0]))]
            await until(lambda: emulator.in_flight == 30, timeout_s=60)
            runs.append(tasks.create_task(second.run(stops[1])))
            await until(lambda: second.consume.state().records_running > 0, timeout_s=60)
            emulator.release()
            await until_equal(lambda: lines.value(postgres_dsn, SETTLED), 30, timeout_s=60)
            for stop, run in zip(stops, runs, strict=True):
                stop.set()
                await run
        outcomes = first.telemetry.outcomes + second.telemetry.outcomes
        bill = emulator.bill.lines
    assert outcomes[Outcome.ATTRIBUTED] == 30
    assert second.telemetry.outcomes.total() > 0
    assert len(bill) == 30 * CALLS_PER_ANSWER
    await llm_lines.assert_each_has_one_outcome(postgres_dsn, answers)
    await llm_lines.assert_conserved(postgres_dsn, bill)


async def test_a_redelivered_answer_is_judged_from_the_journal_and_no_call_is_made(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between the last response and the save."""
    answers = llm_lines.answers(10)
    async with LlmEmulator() as emulator:
        settings = llm_lines.settings_of(kafka_broker, postgres_dsn, topics_prefix, OPENAI, emulator)
        await ensure_topics(settings)
        await produce(kafka_broker, settings.kafka.answers_topic, lines.events(answers))
        async with open_worker(settings) as worker:
            judged: list[AnswerKey] = []

            async def dies(attribution: object, message: object, record: object) -> None:
                judged.append(attribution.answer.key)  # type: ignore[attr-defined]  # an Attribution
                await until(lambda: len(judged) == 10)
                raise RuntimeError("the process dies")

            monkeypatch.setattr(worker.store, "save", dies)
            with pytest.raises(RuntimeError, match="the process dies"):
                await worker.run(asyncio.Event())
        assert await lines.value(postgres_dsn, SETTLED) == 0
        assert len(emulator.bill.lines) == 10 * CALLS_PER_ANSWER
        await llm_lines.run_until_drained(settings)
        bill = emulator.bill.lines
    assert len(bill) == 10 * CALLS_PER_ANSWER
    await llm_lines.assert_each_has_one_outcome(postgres_dsn, answers)
    await llm_lines.assert_conserved(postgres_dsn, bill)
    stored = await lines.value(postgres_dsn, "SELECT sum(cost_usd) FROM attributions")
    assert stored == sum(map(llm_lines.billed_usd, bill)), (
        "the attribution costs what its calls cost, whoever made them"
    )
