"""`Prices`: the package genai-prices, offline, with the configuration's own prices before it."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from hashlib import sha256
from importlib.metadata import version

from genai_prices import data_snapshot
from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

from worker.core.budget import Limits
from worker.core.cost import UnitPrices
from worker.llm_ports import Prices
from worker.settings import ConfigurationError, ModelPrices

PACKAGE = "genai-prices"
CONFIGURED = "configuration"


class ListedPrices:
    """See `Prices`. A price list of the package is dated and may have tiers; what is configured has neither."""

    def __init__(self, configured: Mapping[str, ModelPrices]) -> None:
        self._configured = {name.lower(): _configured(prices) for name, prices in configured.items()}
        self._package_version = version(PACKAGE)
        self._known: dict[tuple[str, str], ModelInfo | None] = {}

    def of(self, provider: str, model: str, at: datetime, *, input_tokens: int) -> UnitPrices | None:
        configured = self._configured.get(f"{provider}/{model}".lower())
        if configured is not None:
            return configured
        known = self._find(provider, model)
        return None if known is None else self._flat(known, known.get_prices(at), input_tokens)

    def _find(self, provider: str, model: str) -> ModelInfo | None:
        if (provider, model) not in self._known:
            try:
                _, found = data_snapshot.get_snapshot().find_provider_model(model, None, provider, None)
            except LookupError:
                found = None
            self._known[provider, model] = found
        return self._known[provider, model]

    def _flat(self, model: ModelInfo, prices: ModelPrice, input_tokens: int) -> UnitPrices | None:
        input_ = _at_size(prices.input_mtok, input_tokens)
        output = _at_size(prices.output_mtok, input_tokens)
        # A price per request is one that our rows cannot hold: better unpriced than too cheap.
        if input_ is None or output is None or prices.requests_kcount:
            return None
        cache_read = _at_size(prices.cache_read_mtok, input_tokens)
        cache_write = _at_size(prices.cache_write_mtok, input_tokens)
        return UnitPrices(
            input=input_,
            output=output,
            # Cached tokens without a price of their own are charged as any input.
            cache_read=input_ if cache_read is None else cache_read,
            cache_write=input_ if cache_write is None else cache_write,
            source=f"{PACKAGE} {model.id}",
            version=self._package_version,
        )


def refuse_unpriced_budgets(limits: Limits, prices: Prices, models: Iterable[tuple[str, str]], at: datetime) -> None:
    """For the start: a budget cannot bound what has no price.

    Raises:
        ConfigurationError: a budget is set, and one of these (provider, model) is unpriced.
    """
    if not limits.any_set:
        return
    unpriced = [f"{name}/{model}" for name, model in models if prices.of(name, model, at, input_tokens=0) is None]
    if unpriced:
        raise ConfigurationError(
            f"budgets are set, and there is no price for {', '.join(unpriced)}: name it in prices, or unset the budgets"
        )


def _at_size(price: Decimal | TieredPrices | None, input_tokens: int) -> Decimal | None:
    """Of the highest tier whose start the whole input exceeds: it applies to every token of the call."""
    if not isinstance(price, TieredPrices):
        return price
    passed = [tier.price for tier in price.tiers if input_tokens > tier.start]
    return passed[-1] if passed else price.base


def _configured(prices: ModelPrices) -> UnitPrices:
    named = [f"{name}={price.normalize():f}" for name, price in prices]
    digest = sha256(",".join(named).encode()).hexdigest()
    return UnitPrices(
        input=prices.input,
        output=prices.output,
        cache_read=prices.cache_read,
        cache_write=prices.cache_write,
        source=CONFIGURED,
        version=digest[:12],
    )
