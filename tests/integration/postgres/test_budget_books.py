"""Many workers on one budget in PostgreSQL: they come, vanish and are cut off, and never spend more than there is."""

import asyncio
import random
from contextlib import AsyncExitStack
from decimal import Decimal
from typing import Self

import asyncpg
import pytest
from pydantic import SecretStr

from tests.support.conditions import until_equal
from tests.support.cutting_proxy import CuttingProxy
from worker.adapters.postgres.budgets import PostgresBudgets, open_budgets
from worker.adapters.postgres.database import open_database
from worker.core.model import TenantId
from worker.errors import UnavailableError
from worker.llm_ports import Budgets, BudgetSpentError
from worker.settings import BudgetSettings, PostgresSettings, Settings

pytestmark = pytest.mark.postgres

TENANTS = [TenantId(name) for name in ("one", "two", "three")]
BUDGETS = BudgetSettings(total_usd_per_day=Decimal(20), tenant_usd_per_day=Decimal(8), lease_fraction=Decimal("0.05"))
HELD = (
    "SELECT coalesce(max(held), 0) "
    "FROM (SELECT sum(held_usd) AS held FROM budget_leases WHERE scope = $1 GROUP BY tenant) by_tenant"
)
HELD_UP = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


async def spend(budgets: Budgets, seed: int, calls: int, spent: dict[TenantId, Decimal]) -> None:
    chance = random.Random(seed)
    for _ in range(calls):
        tenant, amount = chance.choice(TENANTS), Decimal(chance.randint(1, 30)) / 100
        try:
            reservation = await budgets.reserve(tenant, amount)
        except BudgetSpentError:
            continue
        await asyncio.sleep(0)
        if chance.random() < 0.2:
            reservation.release()
            continue
        cost = amount * chance.randint(0, 10) / 10
        reservation.settle(cost)
        spent[tenant] = spent.get(tenant, Decimal(0)) + cost


async def test_many_workers_at_once_never_spend_past_a_budget(settings: Settings, sql: asyncpg.Connection) -> None:
    spent: dict[TenantId, Decimal] = {}
    async with AsyncExitStack() as stack:
        workers = [await enter(stack, settings.postgres) for _ in range(6)]
        async with asyncio.TaskGroup() as tasks:
            for number, budgets in enumerate(workers):
                for caller in range(5):
                    tasks.create_task(spend(budgets, 100 * number + caller, 20, spent))
        assert await sql.fetchval(HELD, "total") <= 20
        assert await sql.fetchval(HELD, "tenant") <= 8
    assert Decimal(10) < sum(spent.values()) <= 20
    assert max(spent.values()) <= 8
    assert await sql.fetchval("SELECT sum(held_usd) FROM budget_leases WHERE scope = 'total'") == sum(spent.values())
    assert await sql.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0


async def enter(stack: AsyncExitStack, postgres: PostgresSettings) -> PostgresBudgets:
    database = await stack.enter_async_context(open_database(postgres))
    return await stack.enter_async_context(open_budgets(database, BUDGETS))


async def test_a_worker_that_vanishes_takes_its_lease_with_it_and_no_more(
    settings: Settings, sql: asyncpg.Connection
) -> None:
    generous = BUDGETS.model_copy(update={"lease_fraction": Decimal("0.5"), "tenant_usd_per_day": None})
    async with open_database(settings.postgres) as database:
        vanishing = open_budgets(database, generous)
        budgets = await vanishing.__aenter__()
        await budgets.reserve(TENANTS[0], Decimal(2))
        held = await sql.fetchval(HELD, "total")
        async with open_budgets(database, generous) as other:
            (await other.reserve(TENANTS[0], Decimal(20) - held)).release()
            with pytest.raises(BudgetSpentError):
                await other.reserve(TENANTS[0], Decimal(20) - held + Decimal("0.01"))
        await vanishing.__aexit__(None, None, None)


@pytest.mark.parametrize("answered", [True, False], ids=["after the commit", "before the commit"])
async def test_a_lease_of_unknown_outcome_is_taken_once(
    sql: asyncpg.Connection, postgres_dsn: str, answered: bool
) -> None:
    async with (
        CuttingProxy(postgres_dsn, cut_at=b"COMMIT", forward=answered) as proxy,
        open_database(PostgresSettings(dsn=SecretStr(proxy.dsn))) as database,
        open_budgets(database, BUDGETS) as budgets,
    ):
        await budgets.reserve(TENANTS[0], Decimal(4))
        assert proxy.cuts == 1
        assert await sql.fetchval(HELD, "total") == Decimal("4.8")
        assert {window.scope.value: lease.held for window, lease in budgets.leases.items()} == {
            "total": Decimal("4.8"),
            "tenant": Decimal("4.2"),
        }


class HeldUp:
    """Another worker's transaction over the total of this day, which never ends by itself."""

    def __init__(self, sql: asyncpg.Connection) -> None:
        self._sql = sql

    async def __aenter__(self) -> Self:
        self._transaction = self._sql.transaction()
        await self._transaction.start()
        await self._sql.execute("LOCK TABLE budget_leases IN ACCESS EXCLUSIVE MODE")
        return self

    async def waiting(self) -> int:
        """How many backends wait for a lock now: inside a transaction, what was seen once would be seen again."""
        await self._sql.execute("SELECT pg_stat_clear_snapshot()")
        count: int = await self._sql.fetchval(HELD_UP)
        return count

    async def __aexit__(self, *_: object) -> None:
        await self._transaction.rollback()


async def test_a_caller_that_leaves_while_it_waits_keeps_nothing(settings: Settings, sql: asyncpg.Connection) -> None:
    """Its record's deadline passed: what was set aside for it would be lost until the day ends."""
    async with open_database(settings.postgres) as database, open_budgets(database, BUDGETS) as budgets:
        async with asyncio.TaskGroup() as tasks, HeldUp(sql) as held_up:
            waiting = [tasks.create_task(budgets.reserve(TENANTS[0], Decimal(3))) for _ in range(2)]
            await until_equal(held_up.waiting, 1)
            waiting[0].cancel()
            await asyncio.sleep(0)
        assert waiting[0].cancelled()
        waiting[1].result().settle(Decimal(1))
        leases = {window.scope.value: (lease.spent, lease.reserved) for window, lease in budgets.leases.items()}
        assert leases == {"total": (Decimal(1), Decimal(0)), "tenant": (Decimal(1), Decimal(0))}


async def test_calls_within_the_lease_go_on_while_others_wait_for_the_books(
    settings: Settings, sql: asyncpg.Connection
) -> None:
    async with open_database(settings.postgres) as database, open_budgets(database, BUDGETS) as budgets:
        await budgets.reserve(TENANTS[0], Decimal(4))
        async with asyncio.TaskGroup() as tasks, HeldUp(sql) as held_up:
            large = tasks.create_task(budgets.reserve(TENANTS[0], Decimal(3)))
            await until_equal(held_up.waiting, 1)
            (await budgets.reserve(TENANTS[0], Decimal("0.2"))).settle(Decimal("0.1"))
            assert not large.done()
        large.result().release()


async def test_a_call_beyond_the_lease_is_an_outage_while_the_database_is_away(settings: Settings) -> None:
    async with open_database(nowhere(settings)) as database, open_budgets(database, BUDGETS) as budgets:
        with pytest.raises(UnavailableError):
            await budgets.reserve(TENANTS[0], Decimal(1))
        assert budgets.leases == {}


async def test_leases_long_past_are_swept(settings: Settings, sql: asyncpg.Connection) -> None:
    async with open_database(settings.postgres) as database, open_budgets(database, BUDGETS) as budgets:
        await budgets.reserve(TENANTS[0], Decimal(4))
        await sql.execute("UPDATE budget_leases SET starts_at = starts_at - interval '41 days' WHERE scope = 'tenant'")
        assert await budgets.sweep() == 1
        assert await sql.fetchval("SELECT string_agg(scope, ' ') FROM budget_leases") == "total"


def nowhere(settings: Settings) -> PostgresSettings:
    """A port that nothing listens on."""
    return settings.postgres.model_copy(update={"dsn": SecretStr("postgresql://nobody@127.0.0.1:1/none")})


async def test_without_a_budget_the_database_is_never_asked(settings: Settings) -> None:
    async with open_database(nowhere(settings)) as database, open_budgets(database, BudgetSettings()) as budgets:
        (await budgets.reserve(TENANTS[0], Decimal(10))).settle(Decimal(5))
        assert budgets.leases == {}
