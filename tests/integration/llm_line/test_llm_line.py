"""The whole line with a language model as its judge: events in, credit and every cent found with SQL."""

import json
from pathlib import Path

import pytest

import worker.demo
from tests.support import lines, llm_lines
from tests.support.kafka import consume, produce
from tests.support.llm import Dialect
from tests.support.samples import OCCURRED_AT
from worker.app import build_credit, ensure_topics
from worker.codec.answers import decode_answer
from worker.core.model import Answer, JudgeProfile
from worker.core.outcome import Outcome
from worker.core.records import Record
from worker.embedded.broker import Broker
from worker.embedded.llm_emulator.emulator import LlmEmulator
from worker.settings import IntakeSettings, Settings

pytestmark = pytest.mark.postgres

SAMPLES = Path(worker.demo.__file__).with_name("sample_answers.jsonl").read_bytes().splitlines()


def sample_answers() -> list[Answer]:
    records = [Record("answers", 0, offset, 0, None, line) for offset, line in enumerate(SAMPLES)]
    return [decode_answer(record, limits=IntakeSettings(), now=OCCURRED_AT).answer for record in records]


def expected_credit(answer: Answer) -> dict[str, tuple[int, int]]:
    """What the local judge's matrix gives each source: credit and share units."""
    if not answer.sources or not answer.text.strip():
        return {source.source_id: (0, 0) for source in answer.sources}
    attribution = build_credit(Settings(), JudgeProfile("local", "1"))(answer, llm_lines.local(answer))
    return {credit.source_id: (credit.credit_units, credit.share_units) for credit in attribution.source_credits}


async def test_answers_become_the_models_credit_and_the_journal_is_the_bill(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str, dialect: Dialect
) -> None:
    harbours = llm_lines.answers(12)
    answers = [*harbours, *sample_answers()]
    async with LlmEmulator() as emulator:
        settings = llm_lines.settings_of(kafka_broker, postgres_dsn, topics_prefix, dialect, emulator)
        await ensure_topics(settings)
        await produce(kafka_broker, settings.kafka.answers_topic, [*lines.events(harbours), *SAMPLES])
        summary = await llm_lines.run_until_drained(settings)
        bill = emulator.bill.lines
    assert Outcome.DEAD_LETTER not in summary.outcomes
    await llm_lines.assert_each_has_one_outcome(postgres_dsn, answers)
    await llm_lines.assert_conserved(postgres_dsn, bill)

    credited = await lines.rows(postgres_dsn, "SELECT * FROM source_attributions")
    for answer in answers:
        rows = [row for row in credited if row["answer_id"] == answer.key.answer_id]
        found = {row["source_id"]: (row["credit_units"], row["share_units"]) for row in rows}
        assert found == expected_credit(answer), answer.key.answer_id

    spent = sum(map(llm_lines.billed_usd, bill))
    assert await lines.value(postgres_dsn, "SELECT sum(cost_usd) FROM llm_calls") == spent
    assert await lines.value(postgres_dsn, "SELECT sum(cost_usd) FROM attributions") == spent
    assert await lines.value(postgres_dsn, "SELECT sum(llm_call_count) FROM attributions") == len(bill)
    published = await consume(kafka_broker, settings.kafka.attributions_topic, len(answers))
    told = [json.loads(record.value) for record in published]
    assert sum(int(message["llm_usage"]["calls"]) for message in told) == len(bill)
