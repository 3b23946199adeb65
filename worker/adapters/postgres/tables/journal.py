"""The journal of LLM calls, the only record of what judging costs, and the leases of the budgets that bound it."""

from sqlalchemy import CheckConstraint, Column, Index, Integer, LargeBinary, PrimaryKeyConstraint, Table, Uuid
from sqlalchemy.schema import UniqueConstraint

from worker.adapters.postgres.tables.columns import (
    COST_USD,
    UNIT_PRICE_USD,
    by_day,
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
from worker.core.budget import BudgetScope, Period
from worker.llm_ports import CallOutcome


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
    moment("deadline_at", "When nobody waits for it any more; a response recorded after it came late"),
    moment("finished_at", "Database time its end was recorded; NULL = still an intent", null=True),
    words("outcome", "intent, complete (a response came), failed (the provider did nothing), unknown (none came)"),
    Column(
        "response", LargeBinary, comment="The response body as received, before parsing; NULL once texts are erased"
    ),
    Column("response_hash", LargeBinary, comment="SHA-256, 32 bytes: the response, once it is erased"),
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
    words("price_version", "Version of that price list", null=True),
    Column("reserved_cost_usd", COST_USD, comment="Upper bound set aside before the call; NULL = unpriced"),
    Column("cost_usd", COST_USD, comment="What the call cost; NULL = unpriced or unknown, never 0"),
    Column("latency_ms", Integer, comment="From sending to the whole response"),
    Column("http_status", Integer, comment="Status code of the response, where there was one"),
    words("provider_request_id", "The provider's own id of the call, where it told one", null=True),
    words("detail", "Why no response can be used, without payload text", null=True),
    PrimaryKeyConstraint("call_id", "started_at"),
    one_of("outcome", CallOutcome),
    hash_lengths("call_key", "response_hash"),
    not_negative(
        "input_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "output_tokens",
        "reasoning_tokens",
        "latency_ms",
    ),
    CheckConstraint("(outcome = 'intent') = (finished_at IS NULL)", "finished"),
    CheckConstraint("outcome NOT IN ('intent', 'unknown') OR cost_usd IS NULL", "unknown_cost"),
    CheckConstraint("outcome <> 'failed' OR cost_usd IS NOT NULL", "failed_cost"),
    CheckConstraint("response IS NULL OR response_hash IS NULL", "response"),
    money("input_price_usd"),
    money("cache_read_price_usd"),
    money("cache_write_price_usd"),
    money("output_price_usd"),
    money("reserved_cost_usd"),
    money("cost_usd"),
    Index(None, "call_key"),
    Index(None, "tenant", "answer_id"),
    by_day("ix_llm_calls_day", "started_at"),
    postgresql_partition_by="RANGE (started_at)",
    comment="Every LLM call ever sent, written before the call and completed after it. Monthly partitions.",
)

# Uniqueness over partitions: llm_calls cannot say that a key has one live intent, this can.
llm_call_claims = Table(
    "llm_call_claims",
    metadata,
    sha256("call_key", "the request that is being asked"),
    Column("call_id", Uuid, nullable=False, comment="The call that asks it, an intent in llm_calls"),
    moment("started_at", "As in llm_calls"),
    moment("expires_at", "As deadline_at in llm_calls: whoever wants the key may take it from then on"),
    PrimaryKeyConstraint("call_key"),
    UniqueConstraint("call_id"),
    hash_lengths("call_key"),
    # Every row lives as long as a call.
    postgresql_with={
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 1000,
        "autovacuum_vacuum_cost_delay": 0,
    },
    comment="One row per intent in llm_calls, gone when it ends: no two workers ask the same thing at once.",
)

budget_leases = Table(
    "budget_leases",
    metadata,
    words("scope", "total or tenant: whose money the budget bounds"),
    words("tenant", "The tenant; empty for the total"),
    words("period", "hour or day"),
    moment("starts_at", "First moment of the hour or day, UTC by database time"),
    Column("worker_id", Uuid, nullable=False, comment="The process that holds the lease"),
    Column("held_usd", COST_USD, nullable=False, comment="What the worker may spend; only it writes this"),
    Column("spent_usd", COST_USD, nullable=False, comment="What it had spent or reserved when it last wrote"),
    moment("written_at", "Database time", default="now()"),
    PrimaryKeyConstraint("scope", "tenant", "period", "starts_at", "worker_id"),
    one_of("scope", BudgetScope),
    one_of("period", Period),
    CheckConstraint("(scope = 'tenant') = (tenant <> '')", "tenant"),
    money("held_usd"),
    money("spent_usd"),
    comment="Slices of each budget's hour and day, by worker: their held_usd never sum to more than the budget.",
)
