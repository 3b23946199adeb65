"""Prices of the package and of the configuration; the package itself is the oracle for whole calls."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from genai_prices import Usage, calc_price, data_snapshot

from worker.adapters.prices import ListedPrices, refuse_unpriced_budgets
from worker.core.budget import Limits
from worker.core.cost import UNIT_PRICE_QUANTUM, UnitPrices, cost_usd
from worker.core.llm import CompletionUsage
from worker.settings import ConfigurationError, ModelPrices, Settings, load_settings

NOW = datetime(2026, 11, 1, tzinfo=UTC)
PROVIDERS = ("openai", "anthropic")
OWN = ModelPrices(input=Decimal("0.1"), output=Decimal("0.2"), cache_read=Decimal("0.01"), cache_write=Decimal("0.125"))
LISTED = ListedPrices({})

MODELS = [
    (provider.id, model.id)
    for provider in data_snapshot.get_snapshot().providers
    if provider.id in PROVIDERS
    for model in provider.models
]
TIMES = [datetime(year, month, 15, tzinfo=UTC) for year in (2024, 2025, 2026) for month in (1, 6, 12)]
USAGES = [
    CompletionUsage(900, 100),
    CompletionUsage(90, 10, cache_read_tokens=1_000, cache_write_tokens=77, reasoning_tokens=5),
    CompletionUsage(100_000, 100, cache_read_tokens=100_000),
    CompletionUsage(100_001, 100, cache_read_tokens=100_000),
    CompletionUsage(1, 1, cache_read_tokens=150_000, cache_write_tokens=150_000),
    CompletionUsage(272_001, 1),
]


def prices_of(provider: str, model: str, usage: CompletionUsage, at: datetime = NOW) -> UnitPrices | None:
    whole_input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return LISTED.of(provider, model, at, input_tokens=whole_input)


def known(provider: str, model: str, input_tokens: int = 0, at: datetime = NOW) -> UnitPrices:
    prices = LISTED.of(provider, model, at, input_tokens=input_tokens)
    assert prices is not None
    return prices


def by_the_package(provider: str, model: str, usage: CompletionUsage, at: datetime) -> Decimal:
    given = Usage(
        input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens + usage.reasoning_tokens,
    )
    return calc_price(given, model, provider_id=provider, genai_request_timestamp=at).total_price


def test_flat_prices_give_what_the_package_gives_for_every_model_size_and_date() -> None:
    priced = 0
    for provider, model in MODELS:
        for at in TIMES:
            for usage in USAGES:
                prices = prices_of(provider, model, usage, at)
                if prices is not None:
                    priced += 1
                    assert cost_usd(usage, prices) == by_the_package(provider, model, usage, at), (model, at, usage)
    assert priced > 100 * len(TIMES) * len(USAGES)


def test_only_what_writes_no_text_or_reads_none_is_unpriced() -> None:
    unpriced = [model for provider, model in MODELS if LISTED.of(provider, model, NOW, input_tokens=1) is None]
    # A fine-tuned model's id there is the beginning of its name, and no name itself.
    kinds = ("embedding", "tts", "whisper", "moderation", "realtime", "transcribe", "live", "ft:")
    assert [model for model in unpriced if not any(kind in model for kind in kinds)] == []


def test_every_listed_price_can_be_stored_exactly() -> None:
    for provider, model in MODELS:
        for input_tokens in (1, 10**6):
            prices = LISTED.of(provider, model, NOW, input_tokens=input_tokens)
            if prices is not None:
                for price in (prices.input, prices.output, prices.cache_read, prices.cache_write):
                    assert price == price.quantize(UNIT_PRICE_QUANTUM)


def test_larger_calls_never_cost_less_a_token_so_that_the_largest_size_bounds_a_reservation() -> None:
    for provider, model in MODELS:
        small, large = (LISTED.of(provider, model, NOW, input_tokens=tokens) for tokens in (1, 10**6))
        if small is not None and large is not None:
            assert small.input <= large.input
            assert small.output <= large.output
            assert small.cache_read <= large.cache_read
            assert small.cache_write <= large.cache_write


def test_a_model_nobody_knows_is_unpriced() -> None:
    assert LISTED.of("openai", "my-own-model", NOW, input_tokens=1) is None
    assert LISTED.of("nobody", "gpt-5-mini", NOW, input_tokens=1) is None


def test_a_name_that_merely_resembles_a_model_is_unpriced() -> None:
    """A fine-tuned or self-hosted namesake must not be billed at another model's price."""
    for name in ("gpt-5-mini-ours", "my-gpt-5", "gpt-4o-mini-tuned"):
        assert LISTED.of("openai", name, NOW, input_tokens=1) is None


def test_a_dated_name_has_its_models_price_and_the_source_says_whose() -> None:
    dated = known("anthropic", "claude-sonnet-4-5-20250929")
    assert dated == known("anthropic", "claude-sonnet-4-5")
    assert dated.source == "genai-prices claude-sonnet-4-5"
    assert dated.version[0].isdigit()


def test_past_a_tiers_start_every_token_costs_more() -> None:
    at_the_start, past_it = (known("anthropic", "claude-sonnet-4-5", tokens) for tokens in (200_000, 200_001))
    assert (at_the_start.input, at_the_start.output) == (Decimal(3), Decimal(15))
    assert (past_it.input, past_it.output) == (Decimal(6), Decimal("22.5"))


def test_a_price_cut_holds_from_its_day_on() -> None:
    before, after = (known("openai", "o3", at=datetime(2025, 6, day, tzinfo=UTC)) for day in (1, 30))
    assert before.input > after.input


def test_cached_tokens_without_a_price_of_their_own_cost_what_input_costs() -> None:
    prices = known("openai", "gpt-4o-mini")
    assert prices.cache_write == prices.input
    assert prices.cache_read < prices.input


def test_configured_prices_come_before_the_packages_at_any_size_and_date() -> None:
    prices = ListedPrices({"openai/gpt-5-mini": OWN, "openai/My-Model": OWN})
    for model in ("gpt-5-mini", "my-model", "MY-MODEL"):
        found = prices.of("openai", model, NOW, input_tokens=10**6)
        assert found is not None
        assert (found.input, found.output, found.cache_read, found.cache_write) == (
            OWN.input,
            OWN.output,
            OWN.cache_read,
            OWN.cache_write,
        )
        assert found.source == "configuration"
    assert prices.of("openai", "gpt-5", NOW, input_tokens=1) == known("openai", "gpt-5")


def test_the_version_of_configured_prices_changes_with_them() -> None:
    versions = set()
    for output in ("0.2", "0.20", "3"):
        own = OWN.model_copy(update={"output": Decimal(output)})
        found = ListedPrices({"openai/m": own}).of("openai", "m", NOW, input_tokens=1)
        assert found is not None
        versions.add(found.version)
    assert len(versions) == 2


def test_prices_are_configured_as_decimal_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    given = '{"openai/m": {"input": "0.25", "output": "2", "cache_read": "0.025", "cache_write": "0.25"}}'
    monkeypatch.setenv("ATTRIBUTION_PRICES", given)
    (price,) = load_settings().prices.values()
    assert (price.input, price.output) == (Decimal("0.25"), Decimal(2))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ('{"openai/m": {"input": 0.25, "output": "2", "cache_read": "0", "cache_write": "0"}}', "string"),
        ('{"openai/m": {"input": "0.25", "output": "2"}}', "CACHE_READ"),
        ('{"m": {"input": "1", "output": "2", "cache_read": "0", "cache_write": "0"}}', "provider/model"),
        ('{"openai/m": {"input": "-1", "output": "2", "cache_read": "0", "cache_write": "0"}}', "greater"),
        ('{"openai/m": {"input": "NaN", "output": "2", "cache_read": "0", "cache_write": "0"}}', "finite"),
        ('{"openai/m": {"input": "0.0000001", "output": "2", "cache_read": "0", "cache_write": "0"}}', "decimal"),
        ('{"openai/m": {"input": "1", "output": "2", "cache_read": "0", "cache_write": "0", "x": "1"}}', "X"),
    ],
)
def test_prices_that_are_none_are_refused(monkeypatch: pytest.MonkeyPatch, given: str, problem: str) -> None:
    monkeypatch.setenv("ATTRIBUTION_PRICES", given)
    with pytest.raises(ConfigurationError, match=problem):
        load_settings()


@pytest.mark.parametrize("given", ["-1", "NaN", "Infinity", "0.00000000001", "much"])
def test_budgets_that_are_none_are_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("ATTRIBUTION_BUDGETS__TOTAL_USD_PER_DAY", given)
    with pytest.raises(ConfigurationError, match="ATTRIBUTION_BUDGETS__TOTAL_USD_PER_DAY"):
        load_settings()


def test_a_budget_is_refused_where_a_model_is_unpriced() -> None:
    bounded = Limits(tenant_usd_per_day=Decimal(5))
    models = [("openai", "gpt-5-mini"), ("openai", "my-model")]
    with pytest.raises(ConfigurationError, match="openai/my-model"):
        refuse_unpriced_budgets(bounded, LISTED, models, NOW)
    refuse_unpriced_budgets(bounded, LISTED, models[:1], NOW)
    refuse_unpriced_budgets(bounded, ListedPrices({"openai/my-model": OWN}), models, NOW)
    refuse_unpriced_budgets(Limits(), LISTED, models, NOW)


def test_no_budget_and_no_price_is_set_by_default() -> None:
    settings = Settings()
    assert settings.prices == {}
    assert set(settings.budgets.model_dump(exclude={"lease_fraction"}).values()) == {None}
