"""What calls of one provider and model may cost, and did."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from decimal import Decimal
from typing import assert_never

from schemas.dead_letter import DeadLetterReason
from worker.core.budget import BudgetScope
from worker.core.charging import Estimate
from worker.core.cost import UnitPrices, cost_usd_max
from worker.core.llm import CompletionUsage
from worker.core.model import TenantId
from worker.errors import PermanentError, UnavailableError
from worker.llm_ports import Budgets, BudgetSpentError, Prices, Provider, Reservation


class MoneyInUseError(Exception):
    """The budget has no room now, but this worker's calls in flight set aside more than they will cost."""


class Purse:
    """Budgets and prices. A reservation is the most that a call can cost, so that no budget is ever passed."""

    def __init__(self, *, provider: Provider, budgets: Budgets, prices: Prices, now: Callable[[], datetime]) -> None:
        self._provider = provider
        self._budgets = budgets
        self._prices = prices
        self._now = now
        self._in_flight: Counter[TenantId] = Counter()

    def most_usd(self, estimate: Estimate) -> Decimal | None:
        """What to set aside; None where the model is unpriced."""
        prices = self._unit_prices(estimate.input_tokens)
        if prices is None:
            return None
        return cost_usd_max(
            prices, input_tokens_max=estimate.input_tokens, output_tokens_max=estimate.output_tokens_max
        )

    def prices_of(self, usage: CompletionUsage) -> UnitPrices | None:
        """The unit prices of a call that used this much."""
        return self._unit_prices(usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens)

    @asynccontextmanager
    async def set_aside(self, tenant: TenantId, amount_usd: Decimal | None) -> AsyncIterator[Reservation]:
        """Released in the end, unless it was settled within.

        Raises:
            UnavailableError: the total budget is spent: intake waits until its window ends.
            PermanentError: the tenant's own is: its records are set aside, and hold up nobody else.
            MoneyInUseError: it is not spent yet, try again when a call has ended.
        """
        reservation = await self._reserve(tenant, amount_usd)
        self._in_flight[tenant] += 1
        try:
            yield reservation
        finally:
            # Of what was settled nothing is released: a reservation ends once.
            reservation.release()
            self._in_flight[tenant] -= 1
            if not self._in_flight[tenant]:
                del self._in_flight[tenant]

    async def _reserve(self, tenant: TenantId, amount_usd: Decimal | None) -> Reservation:
        try:
            return await self._budgets.reserve(tenant, amount_usd)
        except BudgetSpentError as error:
            match error.scope:
                case BudgetScope.TOTAL if self._in_flight.total():
                    raise MoneyInUseError from error
                case BudgetScope.TOTAL:
                    raise UnavailableError(str(error), retry_after_s=error.resets_in_s) from error
                case BudgetScope.TENANT if self._in_flight[tenant]:
                    raise MoneyInUseError from error
                case BudgetScope.TENANT:
                    raise PermanentError(DeadLetterReason.BUDGET_EXHAUSTED, str(error)) from error
                case _:
                    assert_never(error.scope)

    def _unit_prices(self, input_tokens: int) -> UnitPrices | None:
        return self._prices.of(self._provider.name, self._provider.model, self._now(), input_tokens=input_tokens)
