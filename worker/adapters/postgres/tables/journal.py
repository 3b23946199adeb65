"""The journal of LLM calls: the only record of what judging costs."""

from enum import StrEnum

from sqlalchemy import BigInteger, Column, Index, Integer, PrimaryKeyConstraint, Table, Text, Uuid

from worker.adapters.postgres.tables.columns import (
    COST_USD,
    UNIT_PRICE_USD,
    hash_lengths,
    metadata,
    moment,
    money,
    not_negative,
    one_of,
    sha256,
    tokens,
    words,
)


class CallOutcome(StrEnum):
    """What became of one LLM call; `unknown` was sent and never answered, so it may have been billed."""

    INTENT = "intent"
    COMPLETE = "complete"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    MALFORMED = "malformed"
    FAILED = "failed"
    UNKNOWN = "unknown"


def _price(name: str, what: str) -> Column[object]:
    return Column(name, UNIT_PRICE_USD, comment=f"US dollars per {what} token used for cost_usd; NULL = unpriced")


llm_calls = Table(
    "llm_calls",
    metadata,
    Column("call_id", Uuid, nullable=False, comment="Identity of this call, made before it is sent"),
    moment("started_at", "Database time of the intent; decides the monthly partition", default="now()"),
    sha256("call_key", "provider, model and request body: equal requests have equal keys"),
    words("tenant", "Tenant of the answer"),
    words("answer_id", "Answer the call was made for"),
    words("stage", "What was asked: decompose, refine, score, ..."),
    words("provider", "Who was asked"),
    words("model", "Model that was asked, as configured"),
    words("client_request_id", "Request id sent to the provider, to find the call in its records", null=True),
    moment("deadline_at", "When the caller stops waiting"),
    moment("finished_at", "Database time the response or error was recorded; NULL = still an intent", null=True),
    words("outcome", "intent, complete, truncated, refused, malformed, failed or unknown (sent, never answered)"),
    Column("response", Text, comment="The response body as received, before parsing; NULL once texts are erased"),
    tokens("input_tokens", "Input tokens, neither read from nor written to a cache"),
    tokens("cache_read_tokens", "Input tokens read from the provider's cache"),
    tokens("cache_write_tokens", "Input tokens written to the provider's cache"),
    tokens("output_tokens", "Output tokens without reasoning"),
    tokens("reasoning_tokens", "Reasoning tokens"),
    words("usage_source", "reported by the provider, or estimated; NULL = unknown", null=True),
    _price("input_price_usd", "input"),
    _price("cache_read_price_usd", "cache-read"),
    _price("cache_write_price_usd", "cache-write"),
    _price("output_price_usd", "output or reasoning"),
    words("price_source", "Where the prices came from; NULL = unpriced", null=True),
    Column("reserved_cost_usd", COST_USD, comment="Upper bound set aside before the call"),
    Column("cost_usd", COST_USD, comment="What the call cost; NULL = unpriced or unknown, never 0"),
    Column("latency_ms", Integer, comment="From sending to the whole response"),
    Column("http_status", Integer, comment="Status code of the response, where there was one"),
    Column("attempt", BigInteger, nullable=False, comment="Attempt of this call key, from 1, counted across crashes"),
    PrimaryKeyConstraint("call_id", "started_at"),
    one_of("outcome", CallOutcome),
    hash_lengths("call_key"),
    not_negative(
        "input_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "output_tokens",
        "reasoning_tokens",
        "latency_ms",
        "attempt",
    ),
    money("input_price_usd"),
    money("cache_read_price_usd"),
    money("cache_write_price_usd"),
    money("output_price_usd"),
    money("reserved_cost_usd"),
    money("cost_usd"),
    Index(None, "call_key"),
    Index(None, "tenant", "answer_id"),
    postgresql_partition_by="RANGE (started_at)",
    comment="Every LLM call ever sent, written before the call and completed after it. Monthly partitions.",
)
