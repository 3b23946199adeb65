"""A whole worker whose judge is a language model, on an emulated account; and what its bill says beside its rows."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from tests.support import lines
from tests.support.llm import API_KEY, SECRET, Dialect, harbour_answer
from worker.adapters.postgres.evidence import Evidence, decode_evidence
from worker.adapters.prices import ListedPrices
from worker.app import RunSummary, open_worker
from worker.core.cost import cost_usd, stored_usd
from worker.core.llm import CompletionUsage
from worker.core.local.judging import judging
from worker.core.local.steps import returned
from worker.core.local.support import index_of, support_of
from worker.core.local.terms import content_terms
from worker.core.model import Answer, Judgement
from worker.embedded.broker import Broker
from worker.embedded.llm_emulator.bill import BillLine
from worker.embedded.llm_emulator.emulator import LlmEmulator
from worker.settings import Settings

CALLS = "SELECT * FROM llm_calls ORDER BY started_at, call_id"
IMPATIENT = {
    "pause_s": 0.01,
    "pause_max_s": 0.05,
    "recovery_s": 0.1,
    "outage_probe_s": 0.05,
    "initial_burst_s": 50.0,
}
"""A limiter whose pauses are short enough for a test."""


def settings_of(
    broker: Broker,
    dsn: str,
    prefix: str,
    dialect: Dialect,
    emulator: LlmEmulator,
    **sections: Mapping[str, object],
) -> Settings:
    """As `lines.settings_of`, with a judge of this dialect on the emulator."""
    judge = {"name": dialect.provider, "model": dialect.model, "secret": SECRET.decode(), **sections.pop("judge", {})}
    llm = {
        "openai_api_key": API_KEY,
        "openai_base_url": emulator.openai_base_url,
        "anthropic_api_key": API_KEY,
        "anthropic_base_url": emulator.anthropic_base_url,
        **sections.pop("llm", {}),
    }
    limiter = {**IMPATIENT, **sections.pop("limiter", {})}
    return lines.settings_of(broker, dsn, prefix, judge=judge, llm=llm, limiter=limiter, **sections)


async def run_until_drained(settings: Settings) -> RunSummary:
    """With the configured judge."""
    async with open_worker(settings) as worker:
        return await worker.run(asyncio.Event(), until_drained=True)


def answers(count: int, *, start: int = 0, **shape: int) -> list[Answer]:
    """Of different content each."""
    alike = [harbour_answer(f"a-{number}", **shape) for number in range(start, start + count)]
    return [replace(answer, query=f"{answer.query} ({answer.key.answer_id})") for answer in alike]


def local(answer: Answer) -> Judgement:
    """What the emulated model thinks of it."""
    return returned(judging(answer, 64))


async def evidence(dsn: str) -> Mapping[str, Evidence]:
    """By answer id."""
    found = await lines.rows(dsn, "SELECT answer_id, evidence::text AS evidence FROM attributions")
    return {row["answer_id"]: decode_evidence(json.loads(row["evidence"])) for row in found}


async def calls(dsn: str) -> Mapping[str, dict[str, Any]]:
    """The journal's rows by the id that the provider was told; there is one for each."""
    found = await lines.rows(dsn, CALLS)
    by_id = {row["client_request_id"]: row for row in found}
    assert len(by_id) == len(found)
    return by_id


def billed_usd(line: BillLine) -> Decimal:
    """What the provider's price list makes of a line of the bill, as it is stored."""
    usage = line.usage
    whole = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    prices = ListedPrices({}).of(line.api.value, line.model, datetime.now(UTC), input_tokens=whole)
    assert prices is not None
    return stored_usd(cost_usd(usage, prices))


def usage_in(row: Mapping[str, Any]) -> CompletionUsage:
    names = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
    return CompletionUsage(**{name: row[name] for name in names})


def by_id(bill: Iterable[BillLine]) -> Mapping[str, BillLine]:
    """The lines of the bill by the id that the worker sent; it sent each once."""
    billed: Sequence[BillLine] = list(bill)
    found = {line.client_request_id or "": line for line in billed}
    assert len(found) == len(billed)
    return found


async def assert_conserved(dsn: str, bill: Iterable[BillLine], *, cut_off: Iterable[str] = ()) -> None:
    """The journal against the bill.

    Each call on the bill has exactly one row. Rows with known usage equal the bill to the last token and decimal, and
    `unknown` rows are those whose response was not delivered, and no others. `cut_off` are calls that a killed worker
    left in flight: whether their response left the provider nobody knows.
    """
    rows, billed, left = await calls(dsn), by_id(bill), set(cut_off)
    assert billed.keys() <= rows.keys(), "a call was billed, and nobody knows of it"
    assert not [row for row in rows.values() if row["outcome"] == "intent"]
    for call_id, row in rows.items():
        line = billed.get(call_id)
        delivered = line is not None and line.delivered and call_id not in left
        assert (row["outcome"] == "complete") == delivered, (row["outcome"], row["detail"], line)
        if line is None:
            assert row["outcome"] in {"failed", "unknown"}
            assert row["cost_usd"] == (0 if row["outcome"] == "failed" else None)
        elif not delivered:
            assert (row["outcome"], row["cost_usd"]) == ("unknown", None), (row["detail"], line)
            assert row["reserved_cost_usd"] >= billed_usd(line), "bounded by what was set aside"
        elif row["usage_source"] == "provider":
            assert usage_in(row) == line.usage
            assert row["cost_usd"] == billed_usd(line)


async def assert_each_has_one_outcome(dsn: str, answers: Sequence[Answer]) -> None:
    attributed = await lines.rows(dsn, "SELECT answer_id FROM attributions")
    set_aside = await lines.rows(dsn, "SELECT answer_id FROM dead_letters")
    ended = [row["answer_id"] for row in (*attributed, *set_aside)]
    assert sorted(ended) == sorted(answer.key.answer_id for answer in answers)


async def assert_nobody_is_paid_from_an_error(dsn: str, answers: Sequence[Answer]) -> None:
    """Every support on record is the model's own opinion of that pair, or 0 where its evidence could not be found."""
    sources = {str(answer.key.answer_id): answer.sources for answer in answers}
    for answer_id, found in (await evidence(dsn)).items():
        assert found.key_points
        for row, key_point in enumerate(found.key_points):
            for column, source in enumerate(sources[answer_id]):
                opinion = support_of(content_terms(key_point.text), index_of(source))
                believed = {0, opinion} if (row, column) in found.unevidenced else {opinion}
                assert found.supports[row][column] in believed, (answer_id, key_point, source)
