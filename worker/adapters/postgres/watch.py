"""What an operator watches in the tables: one bounded look, for every metric and check that needs the database."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres.database import Database
from worker.adapters.postgres.limits import RecentOutcomes, refusal
from worker.adapters.postgres.recent_outcomes import recent_outcomes
from worker.adapters.postgres.tables import budget_leases, outbox
from worker.core.budget import BudgetScope, Period
from worker.settings import BudgetSettings, Settings

PENDING_COUNTED_MAX = 100_000
"""A longer outbox is told as this long: counting it must not slow down its way out."""

_pending = select(outbox.c.outbox_id).limit(PENDING_COUNTED_MAX).subquery()
_age_s = func.extract("epoch", func.clock_timestamp() - outbox.c.created_at)
PENDING = select(func.count()).select_from(_pending)
OLDEST_AGE_S = select(_age_s).order_by(outbox.c.outbox_id).limit(1)

_leases = budget_leases.c
LEASED = (
    select(_leases.period, func.sum(_leases.held_usd).label("held_usd"))
    .where(
        _leases.scope == BudgetScope.TOTAL.value,
        _leases.starts_at == func.date_trunc(_leases.period, func.clock_timestamp(), "UTC"),
    )
    .group_by(_leases.period)
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look saw; `stopped_by` says why no dead letter may be written any more, where that is so."""

    outbox_pending: int
    outbox_age_s: float
    recent: RecentOutcomes
    stopped_by: str | None
    budget_left_usd: Mapping[Period, Decimal]


class TablesWatch:
    """Looks into the tables of one topic."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._topic = settings.kafka.answers_topic
        self._limits = settings.dead_letters
        self._budgets = _total_limits(settings.budgets)

    async def look(self) -> Seen:
        """One short transaction.

        Raises:
            UnavailableError: the database is down.
            FatalError: rights or tables are missing.
        """
        return await self._database.run(self._look)

    async def _look(self, connection: AsyncConnection) -> Seen:
        recent = await recent_outcomes(connection, self._topic, self._limits)
        leased: dict[str, Decimal] = {}
        if self._budgets:
            leased = {row.period: row.held_usd for row in await connection.execute(LEASED)}
        return Seen(
            outbox_pending=(await connection.execute(PENDING)).scalar_one(),
            outbox_age_s=float((await connection.execute(OLDEST_AGE_S)).scalar_one_or_none() or 0),
            recent=recent,
            stopped_by=refusal(recent, self._limits),
            budget_left_usd={
                period: limit - leased.get(period.value, Decimal(0)) for period, limit in self._budgets.items()
            },
        )


def _total_limits(settings: BudgetSettings) -> Mapping[Period, Decimal]:
    limits = {Period.HOUR: settings.total_usd_per_hour, Period.DAY: settings.total_usd_per_day}
    return {period: limit for period, limit in limits.items() if limit is not None}
