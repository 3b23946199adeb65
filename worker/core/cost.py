"""What a call costs: tokens in disjoint buckets times unit prices, in exact decimals."""

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

from worker.core.llm import CompletionUsage

PER_TOKENS = 1_000_000
"""Unit prices are US dollars per this many tokens."""

UNIT_PRICE_QUANTUM = Decimal("0.000001")
"""The finest unit price, in US dollars per million tokens: what storage can hold of it."""

COST_QUANTUM = Decimal("0.0000000001")
"""US dollars: costs are stored, summed and compared in multiples of this."""


@dataclass(frozen=True, slots=True)
class UnitPrices:
    """US dollars per million tokens, by bucket, of a call of one size; `source` and `version` say where they come from.

    Reasoning tokens cost what output tokens cost. `version` names the price list, so that a cost can be recomputed.
    """

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    source: str
    version: str


def cost_usd(usage: CompletionUsage, prices: UnitPrices) -> Decimal:
    """Exact; nothing is rounded here. Storage keeps ten decimals: see `stored_usd`."""
    total = (
        usage.input_tokens * prices.input
        + usage.cache_read_tokens * prices.cache_read
        + usage.cache_write_tokens * prices.cache_write
        + (usage.output_tokens + usage.reasoning_tokens) * prices.output
    )
    return total / PER_TOKENS


def cost_usd_max(prices: UnitPrices, *, input_tokens_max: int, output_tokens_max: int) -> Decimal:
    """What a call of at most this size can cost, however its input is cached: what to reserve for it.

    The prices must be those of the largest size, where a provider asks more for larger calls.
    """
    dearest_input = max(prices.input, prices.cache_read, prices.cache_write)
    return (input_tokens_max * dearest_input + output_tokens_max * prices.output) / PER_TOKENS


def stored_usd(cost: Decimal) -> Decimal:
    """The cost as it is stored: rounded here, once, half to even."""
    return cost.quantize(COST_QUANTUM, ROUND_HALF_EVEN)
