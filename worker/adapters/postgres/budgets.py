"""`Budgets` on PostgreSQL: the shared books of leases; calls are reserved in memory, within the leases."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID, uuid4

from sqlalchemy import and_, bindparam, delete, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres.bulk import arrays_of, insert_unnested, unnested
from worker.adapters.postgres.coalescer import Flush, coalescing
from worker.adapters.postgres.database import Database
from worker.adapters.postgres.tables import budget_leases
from worker.core.budget import Ask, Lease, Ledger, Limits, Plan, Reserved, Window, reservable
from worker.core.model import TenantId
from worker.errors import FatalError, UnavailableError
from worker.llm_ports import BudgetSpentError, Reservation
from worker.settings import BudgetSettings

LEASES_KEPT_DAYS = 40
"""Past windows stay that long, for whoever asks who spent what; the journal keeps every call."""

_leases = budget_leases.c
WINDOW_COLUMNS = [_leases.scope, _leases.tenant, _leases.period, _leases.starts_at]
LEASE_COLUMNS = [*WINDOW_COLUMNS, _leases.worker_id, _leases.held_usd, _leases.spent_usd]

_wanted = unnested(WINDOW_COLUMNS)
_name = func.concat_ws("|", "attribution-worker budget", *(_wanted.c[item.name] for item in WINDOW_COLUMNS))
# In one order everywhere; locks of the transaction, so that a pooler in transaction mode is no hindrance.
LOCK = select(func.pg_advisory_xact_lock(func.hashtextextended(_name, 0))).order_by(*_wanted.c)
HELD_BY_OTHERS = (
    select(*WINDOW_COLUMNS, func.sum(_leases.held_usd).label("held_usd"))
    .join(_wanted, and_(*(item == _wanted.c[item.name] for item in WINDOW_COLUMNS)))
    .where(_leases.worker_id != bindparam("worker_id"))
    .group_by(*WINDOW_COLUMNS)
)
_insert = insert_unnested(LEASE_COLUMNS)
# Absolute, not by how much: done again after a commit of unknown outcome, it still says the same.
WRITE = _insert.on_conflict_do_update(
    index_elements=[*WINDOW_COLUMNS, _leases.worker_id],
    set_={name: _insert.excluded[name] for name in ("held_usd", "spent_usd", "written_at")},
)
FORGET = delete(budget_leases).where(
    _leases.starts_at < func.now() - literal_column(f"interval '{LEASES_KEPT_DAYS} days'")
)


async def database_time(connection: AsyncConnection) -> datetime:
    at: datetime = (await connection.execute(select(func.clock_timestamp()))).scalar_one()
    return at


@dataclass(slots=True, eq=False)
class Request:
    """Money wanted by a caller, who may have left by the time it is there."""

    tenant: TenantId
    amount_usd: Decimal
    reserved: Reserved | None = None
    abandoned: bool = False


class Books:
    """One worker's ledger, and what it writes of it into the shared books."""

    def __init__(
        self,
        database: Database,
        limits: Limits,
        lease_fraction: Decimal,
        *,
        now: Callable[[AsyncConnection], Awaitable[datetime]],
        monotonic_s: Callable[[], float],
    ) -> None:
        self.limits = limits
        self.ledger = Ledger(lease_fraction)
        self.worker_id: UUID = uuid4()
        self._database = database
        self._now = now
        self._monotonic_s = monotonic_s
        self._seen: tuple[datetime, float] | None = None

    def at(self) -> datetime | None:
        """Database time by our own clock, since the database last told it; None before it has.

        Only decides which window is charged: however wrong it is, no window's limit is passed.
        """
        if self._seen is None:
            return None
        seen_at, seen_s = self._seen
        return seen_at + timedelta(seconds=self._monotonic_s() - seen_s)

    async def lease(self, requests: Sequence[Request]) -> Sequence[Reserved | Exception]:
        """What each request gets, after one look into the books."""

        async def work(connection: AsyncConnection) -> tuple[datetime, Sequence[Ask], Plan]:
            asked_s = self._monotonic_s()
            at = await self._now(connection)
            self._seen = (at, asked_s)
            asks = [Ask(self.limits.windows(request.tenant, at), request.amount_usd) for request in requests]
            windows = sorted({window for ask in asks for window in ask.windows})
            plan = self.ledger.plan(asks, await _locked(connection, windows, self.worker_id))
            await self._write(connection, plan.held, {window: self._spent(window, plan) for window in plan.held})
            return at, asks, plan

        try:
            at, asks, plan = await self._database.run(work)
            reserved = self.ledger.apply(plan, asks)
        finally:
            self.ledger.drop_plan()
        self.ledger.forget_ended(at)
        return [_outcome(*given, at) for given in zip(requests, reserved, plan.refusals, strict=True)]

    async def give_back(self) -> None:
        """What is held and not spent; calls still in flight keep what they reserved."""
        kept = {window: lease.committed for window, lease in self.ledger.given_back().items()}
        if kept:
            await self._database.run(lambda connection: self._write(connection, kept, kept))

    async def sweep(self) -> int:
        async def work(connection: AsyncConnection) -> int:
            return (await connection.execute(FORGET)).rowcount

        return await self._database.run(work)

    def _spent(self, window: Window, plan: Plan) -> Decimal:
        return self.ledger.leases.get(window, Lease()).committed + plan.promised[window]

    async def _write(
        self, connection: AsyncConnection, held: Mapping[Window, Decimal], spent: Mapping[Window, Decimal]
    ) -> None:
        rows = [(*_key(window), self.worker_id, held[window], spent[window]) for window in sorted(held)]
        await connection.execute(WRITE, arrays_of(LEASE_COLUMNS, rows))


class PostgresBudgets:
    """See `Budgets`; made by `open_budgets`."""

    def __init__(self, books: Books, lease: Callable[[Request], Awaitable[Reserved]]) -> None:
        self._books = books
        self._lease = lease

    async def reserve(self, tenant: TenantId, amount_usd: Decimal | None) -> Reservation:
        limits = self._books.limits
        if not limits.any_set:
            return Reserved((), Decimal(0))
        amount_usd = self._bounded(amount_usd)
        at = self._books.at()
        reserved = None if at is None else self._books.ledger.reserve(Ask(limits.windows(tenant, at), amount_usd))
        return reserved or await self._reserve_anew(Request(tenant, amount_usd))

    @property
    def leases(self) -> Mapping[Window, Lease]:
        """This worker's own, for metrics; of the whole account the table budget_leases tells."""
        return self._books.ledger.leases

    async def sweep(self) -> int:
        """For the start and once a day: leases of windows long past are dropped; returns how many were."""
        return await self._books.sweep()

    def _bounded(self, amount_usd: Decimal | None) -> Decimal:
        if amount_usd is None:
            raise FatalError("a budget is set, and a model without a price cannot be bounded by it: set its price")
        amount_usd = reservable(amount_usd)
        most = self._books.limits.total_usd_max()
        if most is not None and amount_usd > most:
            raise FatalError(
                f"one call may cost {amount_usd.normalize():f} USD, more than a whole budget holds ({most:f} USD): "
                "raise budgets.total_usd_per_hour or total_usd_per_day, or lower the model's limits"
            )
        return amount_usd

    async def _reserve_anew(self, request: Request) -> Reserved:
        try:
            return await self._lease(request)
        except asyncio.CancelledError:
            request.abandoned = True
            if request.reserved is not None:
                request.reserved.release()
            raise


@asynccontextmanager
async def open_budgets(
    database: Database,
    settings: BudgetSettings,
    *,
    now: Callable[[AsyncConnection], Awaitable[datetime]] = database_time,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> AsyncIterator[PostgresBudgets]:
    """Budgets that work as long as the context; leaving it gives back what is held and not spent.

    Without a budget the database is never asked. Enter and leave it in one task, as any TaskGroup.
    """
    limits = Limits(
        settings.total_usd_per_hour,
        settings.total_usd_per_day,
        settings.tenant_usd_per_hour,
        settings.tenant_usd_per_day,
    )
    books = Books(database, limits, settings.lease_fraction, now=now, monotonic_s=monotonic_s)
    flush: Flush[Request, Reserved] = books.lease
    pool = database.settings
    try:
        async with coalescing(flush, batch_max=pool.save_batch_max, timeout_s=pool.save_timeout_s, flushers=1) as lease:
            yield PostgresBudgets(books, lease)
    finally:
        # What cannot be given back comes back by itself when its hour or day ends.
        with suppress(UnavailableError):
            await books.give_back()


async def _locked(connection: AsyncConnection, windows: Sequence[Window], worker_id: UUID) -> Mapping[Window, Decimal]:
    """What all others hold of these windows, which nobody else can change until this transaction ends."""
    wanted = arrays_of(WINDOW_COLUMNS, [_key(window) for window in windows])
    await connection.execute(LOCK, wanted)
    rows = (await connection.execute(HELD_BY_OTHERS, {**wanted, "worker_id": worker_id})).all()
    by_key = {tuple(row[:4]): row.held_usd for row in rows}
    return {window: by_key.get(_key(window), Decimal(0)) for window in windows}


def _key(window: Window) -> tuple[str, str, str, datetime]:
    return window.scope.value, window.tenant, window.period.value, window.starts_at


def _outcome(request: Request, reserved: Reserved | None, refused: Window | None, at: datetime) -> Reserved | Exception:
    if reserved is None:
        assert refused is not None  # noqa: S101  # an ask is refused or reserved
        return BudgetSpentError(refused.scope, (refused.ends_at - at).total_seconds())
    request.reserved = reserved
    if request.abandoned:
        reserved.release()
    return reserved
