"""Intents and results of LLM calls for tests, all valid unless a test says otherwise."""

import hashlib
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID, uuid4

from worker.core.cost import UnitPrices, cost_usd
from worker.core.llm import CompletionUsage, Stage
from worker.core.model import AnswerId, AnswerKey, TenantId
from worker.llm_ports import CallIntent, CallOutcome, CallResult

PRICES = UnitPrices(
    input=Decimal("0.25"),
    output=Decimal(2),
    cache_read=Decimal("0.025"),
    cache_write=Decimal("0.3125"),
    source="test",
    version="1",
)
USAGE = CompletionUsage(
    input_tokens=1_001, output_tokens=203, cache_read_tokens=307, cache_write_tokens=11, reasoning_tokens=5
)
COST = cost_usd(USAGE, PRICES)
AT = datetime(2026, 6, 1, tzinfo=UTC)


def call_key(name: str = "request") -> bytes:
    return hashlib.sha256(name.encode()).digest()


def answer_key(answer_id: str = "a-1", tenant: str = "default") -> AnswerKey:
    return AnswerKey(TenantId(tenant), AnswerId(answer_id))


def intent(
    name: str = "request",
    *,
    call_id: UUID | None = None,
    answer_id: str = "a-1",
    tenant: str = "default",
    lives_s: float = 100.0,
    reserved_usd: Decimal | None = Decimal("0.01"),
) -> CallIntent:
    call_id = call_id or uuid4()
    return CallIntent(
        call_id=call_id,
        call_key=call_key(name),
        answer_key=answer_key(answer_id, tenant),
        stage=Stage.SCORE,
        provider="openai",
        model="gpt-5-mini",
        client_request_id=str(call_id),
        lives_s=lives_s,
        reserved_usd=reserved_usd,
    )


def complete(raw: str = "{}", usage: CompletionUsage = USAGE, prices: UnitPrices | None = PRICES) -> CallResult:
    return CallResult(
        CallOutcome.COMPLETE,
        latency_ms=1_234,
        raw=raw,
        usage=usage,
        prices=prices,
        cost_usd=None if prices is None else cost_usd(usage, prices),
        provider_request_id="req-1",
        http_status=200,
    )


def failed(detail: str = "throttled") -> CallResult:
    return CallResult(CallOutcome.FAILED, latency_ms=10, detail=detail, http_status=429)


def unknown(detail: str = "reset") -> CallResult:
    return CallResult(CallOutcome.UNKNOWN, latency_ms=10, detail=detail)
