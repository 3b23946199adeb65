"""Whatever goes wrong with calls: each answer ends once, each billed call is on record, and no error is paid."""

from contextlib import suppress

import pytest

from tests.support import lines, llm_lines
from tests.support.kafka import produce
from tests.support.llm import API_KEY, Dialect
from worker.app import ensure_topics
from worker.embedded.broker import Broker
from worker.embedded.llm_emulator.emulator import LlmEmulator
from worker.embedded.llm_emulator.fault_plan import FaultPlan
from worker.embedded.llm_emulator.faults import Fault
from worker.embedded.llm_emulator.options import EmulatorOptions
from worker.errors import FatalError
from worker.settings import Settings

pytestmark = pytest.mark.postgres

STOPPING = {Fault.UNAUTHORIZED, Fault.FORBIDDEN, Fault.NOT_FOUND, Fault.REDIRECT}
"""An operator must look: the worker stops, and is started again."""
SLOW = {Fault.SILENCE, Fault.HUGE, Fault.DEEP}
STARTS_MAX = 100
TABLE_TEXT = "SELECT coalesce(string_agg(t::text, ''), '') AS text FROM {table} t"


def mixed(share: float) -> FaultPlan:
    """Every fault there is; those that take long seldom."""
    weights = {fault: 0.2 if fault in SLOW | STOPPING else 1.0 for fault in Fault}
    whole = sum(weights.values())
    return FaultPlan({fault: share * weight / whole for fault, weight in weights.items()})


async def run_until_drained(settings: Settings) -> None:
    """Started again whenever an operator had to look."""
    for _ in range(STARTS_MAX):
        with suppress(FatalError):
            await llm_lines.run_until_drained(settings)
            return
    raise AssertionError("it never got to the end")


async def test_under_every_fault_each_answer_ends_once_and_the_journal_is_the_bill(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str, dialect: Dialect
) -> None:
    answers = llm_lines.answers(80)
    options = EmulatorOptions(seed=len(dialect.provider), faults=mixed(0.5), slow_body_s=0.05)
    async with LlmEmulator(options) as emulator:
        settings = llm_lines.settings_of(
            kafka_broker,
            postgres_dsn,
            topics_prefix,
            dialect,
            emulator,
            llm={"call_timeout_s": 5.0},
            dead_letters={"ratio_max": 1.0},
        )
        await ensure_topics(settings)
        await produce(kafka_broker, settings.kafka.answers_topic, lines.events(answers))
        await run_until_drained(settings)
        bill = emulator.bill.lines
        struck = {line.fault for line in bill if line.fault}
    await llm_lines.assert_each_has_one_outcome(postgres_dsn, answers)
    await llm_lines.assert_conserved(postgres_dsn, bill)
    await llm_lines.assert_nobody_is_paid_from_an_error(postgres_dsn, answers)
    assert len(struck) > len(Fault) / 3
    await assert_nothing_is_told(postgres_dsn)


async def assert_nothing_is_told(dsn: str) -> None:
    """The key is nowhere, although one of the faults quotes it; and no reason quotes what publishers wrote."""
    for table in await lines.rows(dsn, "SELECT oid::regclass::text AS name FROM pg_class WHERE relkind IN ('r', 'p')"):
        [kept] = await lines.rows(dsn, TABLE_TEXT.format(table=table["name"]))
        assert API_KEY not in kept["text"], table["name"]
        assert API_KEY.encode().hex() not in kept["text"], table["name"]
    reasons = await lines.rows(dsn, "SELECT detail FROM llm_calls UNION ALL SELECT detail FROM dead_letters")
    assert len(reasons) > 50
    assert not [row for row in reasons if "Harbour" in (row["detail"] or "")]
