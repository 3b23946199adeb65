"""Budgets in memory: the books are a dictionary, workers that share it are as many replicas."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

from worker.core.budget import Ask, Lease, Ledger, Limits, Window, reservable
from worker.core.model import TenantId
from worker.errors import FatalError, UnavailableError
from worker.llm_ports import BudgetSpentError, Reservation

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@dataclass(slots=True)
class FakeBooks:
    """What all workers share: who holds how much of which window."""

    held: dict[tuple[Window, int], Decimal] = field(default_factory=dict)
    down: bool = False
    writes: int = 0

    def held_by_others(self, window: Window, worker: int) -> Decimal:
        return sum((held for (of, by), held in self.held.items() if of == window and by != worker), Decimal(0))

    def held_of(self, window: Window) -> Decimal:
        return sum((held for (of, _), held in self.held.items() if of == window), Decimal(0))


class FakeBudgets:
    """See `Budgets`: one worker's, on books that others may share."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        books: FakeBooks | None = None,
        lease_fraction: Decimal = Decimal("0.02"),
        now: Callable[[], datetime] = lambda: NOON,
    ) -> None:
        self.now = now
        self.limits = limits or Limits()
        self.books = books or FakeBooks()
        self.ledger = Ledger(lease_fraction)

    async def reserve(self, tenant: TenantId, amount_usd: Decimal | None) -> Reservation:
        if amount_usd is None:
            if self.limits.any_set:
                raise FatalError("a budget is set, and a model without a price cannot be bounded by it: set its price")
            amount_usd = Decimal(0)
        ask = Ask(self.limits.windows(tenant, self.now()), reservable(amount_usd))
        most = self.limits.total_usd_max()
        if most is not None and ask.amount_usd > most:
            raise FatalError("one call may cost more than a whole budget holds")
        return self.ledger.reserve(ask) or self._reserve_anew(ask)

    @property
    def leases(self) -> Mapping[Window, Lease]:
        return self.ledger.leases

    def give_back(self) -> None:
        for window, lease in self.ledger.given_back().items():
            self.books.held[window, id(self)] = lease.held

    def _reserve_anew(self, ask: Ask) -> Reservation:
        if self.books.down:
            raise UnavailableError("the database is down")
        others = {window: self.books.held_by_others(window, id(self)) for window in ask.windows}
        plan = self.ledger.plan([ask], others)
        self.books.held.update({(window, id(self)): held for window, held in plan.held.items()})
        self.books.writes += 1
        (reserved,) = self.ledger.apply(plan, [ask])
        self.ledger.forget_ended(self.now())
        refused = plan.refusals[0]
        if reserved is None:
            assert refused is not None
            raise BudgetSpentError(refused.scope, (refused.ends_at - self.now()).total_seconds())
        return reserved
