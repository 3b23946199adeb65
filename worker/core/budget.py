"""Budgets per hour and day, shared by many workers: pure arithmetic of windows, leases and what may be spent.

The shared books hold, for each window of each budget, one lease per worker: how much of it that worker may spend.
Leases of a window never sum to more than its limit, and a worker reserves within its own leases before each call, so
that whatever is lost (a worker, a message, the outcome of a commit) is lost within a lease: the limit is never passed.
A worker that vanishes takes at most its leases with it, until their windows end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from enum import StrEnum

from worker.core.cost import COST_QUANTUM, stored_usd

NOTHING = Decimal(0)


class BudgetScope(StrEnum):
    """Whose money a budget bounds."""

    TOTAL = "total"
    TENANT = "tenant"


class Period(StrEnum):
    """What a budget is renewed with, in UTC."""

    HOUR = "hour"
    DAY = "day"


LENGTHS = {Period.HOUR: timedelta(hours=1), Period.DAY: timedelta(days=1)}


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """One hour or day of one budget; `tenant` is empty for the total."""

    scope: BudgetScope
    tenant: str
    period: Period
    starts_at: datetime

    @property
    def ends_at(self) -> datetime:
        return self.starts_at + LENGTHS[self.period]


@dataclass(frozen=True, slots=True)
class Limits:
    """US dollars per budget; None is unlimited."""

    total_usd_per_hour: Decimal | None = None
    total_usd_per_day: Decimal | None = None
    tenant_usd_per_hour: Decimal | None = None
    tenant_usd_per_day: Decimal | None = None

    @property
    def any_set(self) -> bool:
        return any(limit is not None for limit in self._by_kind().values())

    def windows(self, tenant: str, at: datetime) -> Mapping[Window, Decimal]:
        """The windows that a call of this tenant falls into at that time, with their limits."""
        at = at.astimezone(UTC)
        day = at.replace(hour=0, minute=0, second=0, microsecond=0)
        starts = {Period.HOUR: day.replace(hour=at.hour), Period.DAY: day}
        return {
            Window(scope, tenant if scope is BudgetScope.TENANT else "", period, starts[period]): limit
            for (scope, period), limit in self._by_kind().items()
            if limit is not None
        }

    def total_usd_max(self) -> Decimal | None:
        """More than this can never be reserved at once, in any window; None is unlimited."""
        limits = [limit for limit in (self.total_usd_per_hour, self.total_usd_per_day) if limit is not None]
        return min(limits, default=None)

    def _by_kind(self) -> Mapping[tuple[BudgetScope, Period], Decimal | None]:
        """The total's first: where both are spent, waiting loses nothing, a tenant's dead letter would."""
        return {
            (BudgetScope.TOTAL, Period.HOUR): self.total_usd_per_hour,
            (BudgetScope.TOTAL, Period.DAY): self.total_usd_per_day,
            (BudgetScope.TENANT, Period.HOUR): self.tenant_usd_per_hour,
            (BudgetScope.TENANT, Period.DAY): self.tenant_usd_per_day,
        }


@dataclass(slots=True)
class Lease:
    """What one worker may spend of one window: `held` by the books, of which it `spent` and `reserved` some."""

    held: Decimal = NOTHING
    spent: Decimal = NOTHING
    reserved: Decimal = NOTHING

    @property
    def committed(self) -> Decimal:
        return self.spent + self.reserved


@dataclass(frozen=True, slots=True)
class Ask:
    """Money wanted for one call, in each of these windows."""

    windows: Mapping[Window, Decimal]
    amount_usd: Decimal


@dataclass(frozen=True, slots=True)
class Plan:
    """What a worker will hold once the books say so, and for each ask the window that has no room for it, or None."""

    held: Mapping[Window, Decimal] = field(default_factory=dict)
    refusals: Sequence[Window | None] = ()
    promised: Mapping[Window, Decimal] = field(default_factory=dict)


@dataclass(slots=True)
class Reserved:
    """Money set aside for one call; settled or released once, whatever comes later changes nothing."""

    _leases: Sequence[Lease]
    amount_usd: Decimal
    _open: bool = True

    def settle(self, cost_usd: Decimal | None) -> None:
        """The call's cost, also where it exceeds what was reserved; None keeps the whole reservation as spent."""
        if self._open:
            self._open = False
            for lease in self._leases:
                lease.reserved -= self.amount_usd
                lease.spent += self.amount_usd if cost_usd is None else stored_usd(cost_usd)

    def release(self) -> None:
        self.settle(NOTHING)


class Ledger:
    """One worker's leases: reserves within them, and plans what to hold instead when they do not suffice.

    `lease_fraction` is what it takes of a window's rest beyond its need, so that the next calls find it there.
    """

    def __init__(self, lease_fraction: Decimal) -> None:
        self.leases: dict[Window, Lease] = {}
        self._lease_fraction = lease_fraction
        self._plan = Plan()

    def reserve(self, ask: Ask) -> Reserved | None:
        """Within the leases held now; None when one of them does not suffice. Asks of an open plan come first."""
        for window in ask.windows:
            lease = self.leases.get(window)
            promised = self._plan.promised.get(window, NOTHING)
            if lease is None or lease.held < lease.committed + promised + ask.amount_usd:
                return None
        return self._reserved(ask)

    def plan(self, asks: Sequence[Ask], held_by_others: Mapping[Window, Decimal]) -> Plan:
        """What to hold for these asks, in their order, given what the books say of all other workers.

        The plan stays open, and what it promises untouched by `reserve`, until it is applied or dropped. Planning
        again replaces it.
        """
        limits = {window: limit for ask in asks for window, limit in ask.windows.items()}
        room = {window: limits[window] - held_by_others.get(window, NOTHING) for window in limits}
        left = {window: room[window] - self._committed(window) for window in limits}
        refusals: list[Window | None] = []
        for ask in asks:
            refused = next((window for window in ask.windows if left[window] < ask.amount_usd), None)
            refusals.append(refused)
            if refused is None:
                for window in ask.windows:
                    left[window] -= ask.amount_usd
        promised = {window: room[window] - left[window] - self._committed(window) for window in limits}
        held = {window: self._to_hold(window, promised[window], left[window]) for window in limits}
        self._plan = Plan(held, tuple(refusals), promised)
        return self._plan

    def apply(self, plan: Plan, asks: Sequence[Ask]) -> list[Reserved | None]:
        """The books say what was planned; what was promised is reserved, in the order of the asks."""
        self._plan = Plan()
        for window, held in plan.held.items():
            self.leases.setdefault(window, Lease()).held = held
        pairs = zip(asks, plan.refusals, strict=True)
        return [self._reserved(ask) if refused is None else None for ask, refused in pairs]

    def drop_plan(self) -> None:
        """The books may say what was planned, or not: what the worker holds stays as it was, which is not more."""
        self._plan = Plan()

    def forget_ended(self, at: datetime) -> None:
        """Leases of past windows, once nothing is reserved in them."""
        for window in [window for window, lease in self.leases.items() if window.ends_at <= at and not lease.reserved]:
            del self.leases[window]

    def given_back(self) -> Mapping[Window, Lease]:
        """Every lease cut to what is spent, or still reserved, in it; for the books, at the end."""
        self.drop_plan()
        for lease in self.leases.values():
            lease.held = lease.committed
        return self.leases

    def _reserved(self, ask: Ask) -> Reserved:
        leases = [self.leases[window] for window in ask.windows]
        for lease in leases:
            lease.reserved += ask.amount_usd
        return Reserved(leases, ask.amount_usd)

    def _committed(self, window: Window) -> Decimal:
        lease = self.leases.get(window)
        return NOTHING if lease is None else lease.committed

    def _to_hold(self, window: Window, promised: Decimal, left: Decimal) -> Decimal:
        lease = self.leases.get(window, Lease())
        needed = lease.committed + promised
        if needed <= lease.held:
            return lease.held
        # Costs above their reservations can have used up more than there was.
        in_advance = max(NOTHING, left * self._lease_fraction).quantize(COST_QUANTUM, ROUND_FLOOR)
        return needed + in_advance


def reservable(amount_usd: Decimal) -> Decimal:
    """An amount as the books can hold it, rounded up."""
    return amount_usd.quantize(COST_QUANTUM, ROUND_CEILING)
