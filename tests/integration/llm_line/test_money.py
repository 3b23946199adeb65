"""What may be spent, what need not be, and who judges while the first judge is down."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest

from tests.support import lines, llm_lines
from tests.support.conditions import until
from tests.support.kafka import produce
from tests.support.llm import ANTHROPIC, OPENAI, Dialect, harbour_answer
from worker.app import ensure_topics, open_worker
from worker.core.model import Answer, AnswerKey, TenantId
from worker.core.outcome import Outcome
from worker.embedded.broker import Broker
from worker.embedded.llm_emulator.emulator import LlmEmulator
from worker.embedded.llm_emulator.fault_plan import FaultPlan
from worker.embedded.llm_emulator.faults import Fault
from worker.embedded.llm_emulator.options import EmulatorOptions
from worker.settings import TextStorage

pytestmark = pytest.mark.postgres


def of_tenant(answers: Sequence[Answer], tenant: str) -> list[Answer]:
    return [replace(answer, key=AnswerKey(TenantId(tenant), answer.key.answer_id)) for answer in answers]


# Budgets


async def test_two_workers_never_spend_more_than_the_budget_and_then_wait(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    budget = Decimal("0.02")
    answers = llm_lines.answers(120)
    async with LlmEmulator() as emulator:
        settings = llm_lines.settings_of(
            kafka_broker,
            postgres_dsn,
            topics_prefix,
            OPENAI,
            emulator,
            budgets={"total_usd_per_day": str(budget)},
            # Records that wait for a budget finish no drain.
            kafka={"rebalance_drain_ms": 100},
            shutdown={"drain_s": 0.1},
        )
        await ensure_topics(settings)
        await produce(kafka_broker, settings.kafka.answers_topic, lines.events(answers))
        async with open_worker(settings) as first, open_worker(settings) as second, asyncio.TaskGroup() as tasks:
            stop = asyncio.Event()
            for worker in (first, second):
                tasks.create_task(worker.run(stop))
            await until(lambda: all(worker.telemetry.outage_waits > 100 for worker in (first, second)), 60)
            assert first.outages.waiting
            assert second.outages.waiting
            stop.set()
        bill = emulator.bill.lines
    spent = sum(map(llm_lines.billed_usd, bill))
    assert budget / 2 < spent <= budget
    assert await lines.value(postgres_dsn, "SELECT count(*) FROM dead_letters") == 0, "the total waits, nothing is lost"


async def test_a_tenants_own_budget_sets_its_records_aside_and_holds_up_nobody_else(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    budget = Decimal("0.01")
    greedy = of_tenant(llm_lines.answers(60), "greedy")
    modest = of_tenant(llm_lines.answers(10, start=100), "modest")
    async with LlmEmulator() as emulator:
        settings = llm_lines.settings_of(
            kafka_broker,
            postgres_dsn,
            topics_prefix,
            OPENAI,
            emulator,
            budgets={"tenant_usd_per_day": str(budget)},
            dead_letters={"ratio_max": 1.0},
        )
        await ensure_topics(settings)
        await produce(kafka_broker, settings.kafka.answers_topic, lines.events([*greedy, *modest]))
        await llm_lines.run_until_drained(settings)
        bill = emulator.bill.lines
    await llm_lines.assert_each_has_one_outcome(postgres_dsn, [*greedy, *modest])
    await llm_lines.assert_conserved(postgres_dsn, bill)
    attributed = Counter(row["tenant"] for row in await lines.rows(postgres_dsn, "SELECT tenant FROM attributions"))
    letters = await lines.rows(postgres_dsn, "SELECT tenant, reason FROM dead_letters")
    assert attributed["modest"] == 10
    assert attributed["greedy"] > 3
    assert {(row["tenant"], row["reason"]) for row in letters} == {("greedy", "budget_exhausted")}
    by_tenant = await lines.rows(postgres_dsn, "SELECT tenant, sum(cost_usd) AS usd FROM llm_calls GROUP BY tenant")
    spent = {row["tenant"]: row["usd"] for row in by_tenant}
    assert budget * 7 / 10 < spent["greedy"] <= budget


# Copies


async def test_answers_of_one_content_are_judged_once_by_all_processes(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    twins = [harbour_answer(f"a-{number}") for number in range(12)]
    async with LlmEmulator() as emulator:
        settings = llm_lines.settings_of(kafka_broker, postgres_dsn, topics_prefix, OPENAI, emulator)
        await ensure_topics(settings)
        for batch in (twins[:6], twins[6:]):
            await produce(kafka_broker, settings.kafka.answers_topic, lines.events(batch))
            await llm_lines.run_until_drained(settings)
        bill = emulator.bill.lines
    assert len(bill) == 2
    stored = await lines.rows(
        postgres_dsn, "SELECT answer_id, llm_call_count, cost_usd, reused_from_answer_id AS origin FROM attributions"
    )
    (original,) = [row for row in stored if row["origin"] is None]
    assert (original["llm_call_count"], original["cost_usd"]) == (2, sum(map(llm_lines.billed_usd, bill)))
    copies = [row for row in stored if row["origin"] is not None]
    assert len(copies) == 11
    assert {(row["origin"], row["llm_call_count"], row["cost_usd"]) for row in copies} == {
        (original["answer_id"], 0, 0)
    }
    credits_ = await lines.rows(
        postgres_dsn, "SELECT DISTINCT source_id, credit_units, share_units FROM source_attributions"
    )
    assert len(credits_) == len(twins[0].sources), "each twin's sources earn the same"


async def test_where_texts_are_not_kept_nothing_is_copied_and_everything_else_works(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    twins = [harbour_answer(f"a-{number}") for number in range(4)]
    async with LlmEmulator() as emulator:
        settings = llm_lines.settings_of(kafka_broker, postgres_dsn, topics_prefix, OPENAI, emulator)
        settings = settings.model_copy(update={"store_text": TextStorage.HASH})
        await ensure_topics(settings)
        await produce(kafka_broker, settings.kafka.answers_topic, lines.events(twins))
        await llm_lines.run_until_drained(settings)
        bill = emulator.bill.lines
    assert len(bill) == 2 * len(twins)
    await llm_lines.assert_each_has_one_outcome(postgres_dsn, twins)
    await llm_lines.assert_conserved(postgres_dsn, bill)
    kept = await lines.rows(postgres_dsn, "SELECT response, response_hash FROM llm_calls")
    assert [row["response"] for row in kept] == [None] * len(bill)
    assert all(len(row["response_hash"]) == 32 for row in kept)


# Two judges


@pytest.mark.parametrize("trouble", [Fault.SERVER_ERROR, Fault.INSUFFICIENT_QUOTA])
async def test_while_the_first_provider_is_down_the_second_judges_under_its_own_method(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str, dialect: Dialect, trouble: Fault
) -> None:
    first, second = (OPENAI, ANTHROPIC) if dialect is OPENAI else (ANTHROPIC, OPENAI)
    before, during, after = (llm_lines.answers(4, start=start) for start in (0, 100, 200))
    async with LlmEmulator() as well, LlmEmulator(EmulatorOptions(faults=FaultPlan({trouble: 1.0}))) as down:
        base_url = {"openai": "openai_base_url", "anthropic": "anthropic_base_url"}[first.provider]
        judge = {"fallback_name": second.provider, "fallback_model": second.model}
        for batch, account in ((before, well), (during, down), (after, well)):
            settings = llm_lines.settings_of(
                kafka_broker,
                postgres_dsn,
                topics_prefix,
                first,
                well,
                judge=judge,
                llm={base_url: getattr(account, base_url), "transient_failures_max": 2},
            )
            await ensure_topics(settings)
            await produce(kafka_broker, settings.kafka.answers_topic, lines.events(batch))
            summary = await llm_lines.run_until_drained(settings)
            assert summary.outcomes == {Outcome.ATTRIBUTED: 4}
        bill = well.bill.lines
    judged_by = await lines.rows(
        postgres_dsn,
        "SELECT answer_id, document->'judge'->>'name' AS judge, document->'judge'->'models'->>0 AS model "
        "FROM attributions JOIN methods USING (method_hash)",
    )
    found = {row["answer_id"]: (row["judge"], row["model"]) for row in judged_by}
    assert {found[answer.key.answer_id] for answer in (*before, *after)} == {(first.provider, first.model)}
    assert {found[answer.key.answer_id] for answer in during} == {(second.provider, second.model)}
    await llm_lines.assert_conserved(postgres_dsn, bill)
    assert await lines.value(postgres_dsn, "SELECT sum(cost_usd) FROM attributions") == sum(
        map(llm_lines.billed_usd, bill)
    )
