"""LLM calls as table rows: what an intent and its end are written as, and what is read back."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import Column, Double

from worker.adapters.postgres.bulk import arrays_of
from worker.adapters.postgres.tables import llm_calls
from worker.adapters.postgres.text import scrubbed
from worker.core.cost import PER_TOKENS, UnitPrices, stored_usd
from worker.core.llm import CompletionUsage, UsageSource
from worker.core.model import Usage
from worker.llm_ports import CallIntent, CallOutcome, CallResult, JournaledCall

Arrays = Mapping[str, Sequence[object]]

LIVES_S: Column[float] = Column("lives_s", Double)
"""No column of the table: the database adds it to its own time."""

COPIED_INTENT_COLUMNS = [
    llm_calls.c[name]
    for name in (
        "call_id",
        "call_key",
        "tenant",
        "answer_id",
        "stage",
        "provider",
        "model",
        "client_request_id",
        "reserved_cost_usd",
    )
]
INTENT_COLUMNS = [*COPIED_INTENT_COLUMNS, LIVES_S]

END_COLUMNS = [
    llm_calls.c[name]
    for name in (
        "outcome",
        "response",
        "input_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "output_tokens",
        "reasoning_tokens",
        "usage_source",
        "input_price_usd",
        "cache_read_price_usd",
        "cache_write_price_usd",
        "output_price_usd",
        "price_source",
        "price_version",
        "cost_usd",
        "latency_ms",
        "http_status",
        "provider_request_id",
        "detail",
    )
]


def given(columns: Sequence[Column[Any]]) -> list[Column[Any]]:
    """The same under names that an UPDATE may use for parameters: those of the table SQLAlchemy keeps for itself."""
    return [Column(f"given_{item.name}", item.type) for item in columns]


CLOSE_COLUMNS = given([llm_calls.c.call_id, *END_COLUMNS])
GIVEN_ANSWER_KEY_COLUMNS = given([llm_calls.c.tenant, llm_calls.c.answer_id])
GIVEN_CALL_COLUMNS = given([llm_calls.c.call_id, llm_calls.c.started_at])


def intent_arrays(intents: Sequence[CallIntent]) -> Arrays:
    return arrays_of(INTENT_COLUMNS, [_intent_row(intent) for intent in intents])


def close_arrays(closes: Sequence[tuple[UUID, CallResult]]) -> Arrays:
    return arrays_of(CLOSE_COLUMNS, [_close_row(call_id, result) for call_id, result in closes])


def encoded_response(raw: str) -> bytes:
    """Every string, with NUL and lone surrogates too: a response is evidence, and nothing of it is scrubbed."""
    return raw.encode("utf-8", "surrogatepass")


def journaled_call(row: Any) -> JournaledCall:
    usage = None
    if row.usage_source is not None:
        usage = CompletionUsage(
            input_tokens=row.input_tokens,
            output_tokens=row.output_tokens,
            cache_read_tokens=row.cache_read_tokens,
            cache_write_tokens=row.cache_write_tokens,
            reasoning_tokens=row.reasoning_tokens,
            source=UsageSource(row.usage_source),
        )
    return JournaledCall(row.call_id, row.response.decode("utf-8", "surrogatepass"), usage, row.cost_usd)


def usage_of_row(row: Any) -> Usage:
    return Usage(
        calls=row.calls,
        input_tokens=int(row.input_tokens),
        cache_read_tokens=int(row.cache_read_tokens),
        cache_write_tokens=int(row.cache_write_tokens),
        output_tokens=int(row.output_tokens),
        reasoning_tokens=int(row.reasoning_tokens),
        cost_usd=row.cost_usd,
    )


def _intent_row(intent: CallIntent) -> tuple[object, ...]:
    return (
        intent.call_id,
        intent.call_key,
        intent.answer_key.tenant,
        intent.answer_key.answer_id,
        intent.stage.value,
        intent.provider,
        intent.model,
        intent.client_request_id,
        None if intent.reserved_usd is None else stored_usd(intent.reserved_usd),
        intent.lives_s,
    )


def _close_row(call_id: UUID, result: CallResult) -> tuple[object, ...]:
    usage, prices = result.usage, result.prices
    return (
        call_id,
        result.outcome.value,
        encoded_response(result.raw) if result.raw is not None and result.outcome is CallOutcome.COMPLETE else None,
        *_token_counts(usage),
        None if usage is None else usage.source.value,
        *_unit_prices(prices),
        None if prices is None else prices.source,
        None if prices is None else prices.version,
        _stored_cost(result),
        result.latency_ms,
        result.http_status,
        None if result.provider_request_id is None else scrubbed(result.provider_request_id),
        None if result.detail is None else scrubbed(result.detail),
    )


def _token_counts(usage: CompletionUsage | None) -> tuple[int, ...]:
    if usage is None:
        return (0, 0, 0, 0, 0)
    return (
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
    )


def _unit_prices(prices: UnitPrices | None) -> tuple[Decimal | None, ...]:
    if prices is None:
        return (None, None, None, None)
    per_million = (prices.input, prices.cache_read, prices.cache_write, prices.output)
    return tuple(price / PER_TOKENS for price in per_million)


def _stored_cost(result: CallResult) -> Decimal | None:
    if result.cost_usd is not None:
        return stored_usd(result.cost_usd)
    return Decimal(0) if result.outcome is CallOutcome.FAILED else None
