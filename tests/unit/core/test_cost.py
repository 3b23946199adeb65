"""What a call costs, by the prices it is charged at."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.cost import COST_QUANTUM, UNIT_PRICE_QUANTUM, UnitPrices, cost_usd, cost_usd_max, stored_usd
from worker.core.llm import CompletionUsage

PRICES = UnitPrices(
    input=Decimal("0.25"),
    output=Decimal(2),
    cache_read=Decimal("0.025"),
    cache_write=Decimal("0.3125"),
    source="t",
    version="1",
)
counts = st.integers(0, 2_000_000)
unit_price = st.integers(0, 10**9).map(lambda units: units * UNIT_PRICE_QUANTUM)
usages = st.builds(CompletionUsage, counts, counts, counts, counts, counts)
price_lists = st.builds(UnitPrices, unit_price, unit_price, unit_price, unit_price, st.just("t"), st.just("1"))


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (CompletionUsage(1_000_000, 0), "0.25"),
        (CompletionUsage(0, 1_000_000), "2"),
        (CompletionUsage(0, 0, cache_read_tokens=1_000_000), "0.025"),
        (CompletionUsage(0, 0, cache_write_tokens=1_000_000), "0.3125"),
        (CompletionUsage(0, 0, reasoning_tokens=1_000_000), "2"),
        (CompletionUsage(0, 0), "0"),
        (CompletionUsage(1, 0), "0.00000025"),
        (CompletionUsage(1, 1, 1, 1, 1), "0.0000045875"),
    ],
)
def test_each_bucket_has_its_price(usage: CompletionUsage, cost: str) -> None:
    """litellm#14849: costs were off by a factor of 2.6–6.6 where buckets overlapped."""
    assert cost_usd(usage, PRICES) == Decimal(cost)


@given(usage=usages, prices=price_lists)
def test_costs_are_exact(usage: CompletionUsage, prices: UnitPrices) -> None:
    exact = (
        usage.input_tokens * Fraction(prices.input)
        + usage.cache_read_tokens * Fraction(prices.cache_read)
        + usage.cache_write_tokens * Fraction(prices.cache_write)
        + (usage.output_tokens + usage.reasoning_tokens) * Fraction(prices.output)
    ) / 1_000_000
    assert Fraction(cost_usd(usage, prices)) == exact


@given(usage=usages, prices=price_lists, spare=st.tuples(counts, counts))
def test_no_call_within_a_size_costs_more_than_its_bound(
    usage: CompletionUsage, prices: UnitPrices, spare: tuple[int, int]
) -> None:
    bound = cost_usd_max(
        prices,
        input_tokens_max=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens + spare[0],
        output_tokens_max=usage.output_tokens + usage.reasoning_tokens + spare[1],
    )
    assert cost_usd(usage, prices) <= bound


def test_the_bound_is_reached_by_the_dearest_input() -> None:
    assert cost_usd_max(PRICES, input_tokens_max=8, output_tokens_max=2) == cost_usd(
        CompletionUsage(0, 2, cache_write_tokens=8), PRICES
    )
    without_cache = replace(PRICES, cache_write=Decimal(0))
    assert cost_usd_max(without_cache, input_tokens_max=8, output_tokens_max=0) == Decimal("0.000002")


@pytest.mark.parametrize(
    ("cost", "stored"),
    [
        ("0.00000000005", "0"),
        ("0.00000000015", "0.0000000002"),
        ("0.00000000025", "0.0000000002"),
        ("0.000000000251", "0.0000000003"),
        ("12.3456789012", "12.3456789012"),
    ],
)
def test_what_is_stored_is_rounded_once_half_to_even(cost: str, stored: str) -> None:
    assert stored_usd(Decimal(cost)) == Decimal(stored)


@given(usage=usages, prices=price_lists)
def test_storing_changes_a_cost_by_half_a_quantum_at_most(usage: CompletionUsage, prices: UnitPrices) -> None:
    cost = cost_usd(usage, prices)
    assert abs(stored_usd(cost) - cost) <= COST_QUANTUM / 2
