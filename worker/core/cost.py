"""What a call costs: tokens in disjoint buckets times unit prices, in exact decimals."""

from dataclasses import dataclass
from decimal import Decimal

from worker.core.llm import CompletionUsage

PER_TOKENS = 1_000_000
"""Unit prices are US dollars per this many tokens."""


@dataclass(frozen=True, slots=True)
class UnitPrices:
    """US dollars per million tokens, by bucket; `source` and `version` say where they come from.

    Reasoning tokens cost what output tokens cost. `version` names the price list, so that a cost can be recomputed.
    """

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    source: str
    version: str


def cost_usd(usage: CompletionUsage, prices: UnitPrices) -> Decimal:
    """Exact; nothing is rounded here. Storage keeps ten decimals and rounds there, once, half to even."""
    total = (
        usage.input_tokens * prices.input
        + usage.cache_read_tokens * prices.cache_read
        + usage.cache_write_tokens * prices.cache_write
        + (usage.output_tokens + usage.reasoning_tokens) * prices.output
    )
    return total / PER_TOKENS
