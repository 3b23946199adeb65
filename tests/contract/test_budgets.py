"""What budgets keep, for the fake that tests believe and for PostgreSQL; each worker has its own, on shared books."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Protocol

import pytest
from pydantic import SecretStr
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.fakes.budgets import NOON, FakeBooks, FakeBudgets
from worker.adapters.postgres.budgets import open_budgets
from worker.adapters.postgres.database import open_database
from worker.core.budget import BudgetScope, Lease, Limits, Window
from worker.core.model import TenantId
from worker.errors import FatalError
from worker.llm_ports import Budgets, BudgetSpentError
from worker.settings import BudgetSettings, PostgresSettings

ONE, OTHER = TenantId("one"), TenantId("other")


class WorkersBudgets(Budgets, Protocol):
    @property
    def leases(self) -> Mapping[Window, Lease]: ...


class Account:
    """Opens budgets as one more worker would; time stands still until a test moves it."""

    def __init__(self, open_: Callable[[BudgetSettings], AbstractAsyncContextManager[WorkersBudgets]]) -> None:
        self.open = open_
        self.now = NOON

    def worker(self, lease_fraction: str = "0.1", **limits: int) -> AbstractAsyncContextManager[WorkersBudgets]:
        given = {name: Decimal(limit) for name, limit in limits.items()}
        return self.open(BudgetSettings(lease_fraction=Decimal(lease_fraction), **given))


@pytest.fixture(params=["fake", pytest.param("postgres", marks=pytest.mark.postgres)])
def account(request: pytest.FixtureRequest) -> Account:
    if request.param == "fake":
        return account_on_fake()
    return account_on_postgres(request.getfixturevalue("postgres_dsn"))


def account_on_fake() -> Account:
    books = FakeBooks()

    @asynccontextmanager
    async def open_(settings: BudgetSettings) -> AsyncIterator[WorkersBudgets]:
        limits = Limits(**settings.model_dump(exclude={"lease_fraction"}))
        budgets = FakeBudgets(limits, books=books, lease_fraction=settings.lease_fraction, now=lambda: opened.now)
        yield budgets
        budgets.give_back()

    opened = Account(open_)
    return opened


def account_on_postgres(dsn: str) -> Account:
    async def now(_connection: AsyncConnection) -> datetime:
        return opened.now

    def monotonic_s() -> float:
        return (opened.now - NOON).total_seconds()

    @asynccontextmanager
    async def open_(settings: BudgetSettings) -> AsyncIterator[WorkersBudgets]:
        async with (
            open_database(PostgresSettings(dsn=SecretStr(dsn))) as database,
            open_budgets(database, settings, now=now, monotonic_s=monotonic_s) as budgets,
        ):
            yield budgets

    opened = Account(open_)
    return opened


async def reserve_until_spent(budgets: Budgets, amount: str, tenant: TenantId = ONE) -> tuple[Decimal, BudgetScope]:
    """What could be reserved in all, and whose budget was spent then."""
    reserved = Decimal(0)
    while True:
        try:
            await budgets.reserve(tenant, Decimal(amount))
        except BudgetSpentError as error:
            return reserved, error.scope
        reserved += Decimal(amount)


async def test_without_a_budget_nothing_is_bounded(account: Account) -> None:
    async with account.worker() as budgets:
        (await budgets.reserve(ONE, Decimal(10**6))).settle(Decimal(5))
        (await budgets.reserve(ONE, None)).release()
        assert budgets.leases == {}


async def test_a_lone_worker_spends_its_budget_to_the_end_and_no_further(account: Account) -> None:
    async with account.worker(total_usd_per_day=10) as budgets:
        assert await reserve_until_spent(budgets, "0.5") == (Decimal(10), BudgetScope.TOTAL)


async def test_what_calls_did_not_cost_is_there_for_the_next(account: Account) -> None:
    async with account.worker(total_usd_per_day=10) as budgets:
        for _ in range(100):
            (await budgets.reserve(ONE, Decimal(1))).settle(Decimal("0.09"))
        assert (await reserve_until_spent(budgets, "0.5"))[0] == Decimal(1)


async def test_a_released_reservation_costs_nothing_and_a_lost_response_what_was_reserved(account: Account) -> None:
    async with account.worker(total_usd_per_hour=10) as budgets:
        for _ in range(50):
            (await budgets.reserve(ONE, Decimal(1))).release()
        for _ in range(4):
            (await budgets.reserve(ONE, Decimal(1))).settle(None)
        assert (await reserve_until_spent(budgets, "1"))[0] == Decimal(6)


async def test_a_spent_budget_says_when_it_is_renewed(account: Account) -> None:
    account.now = NOON + timedelta(minutes=50)
    async with account.worker(total_usd_per_hour=1, tenant_usd_per_day=5) as budgets:
        await budgets.reserve(ONE, Decimal(1))
        with pytest.raises(BudgetSpentError) as spent:
            await budgets.reserve(ONE, Decimal("0.01"))
        assert (spent.value.scope, spent.value.resets_in_s) == (BudgetScope.TOTAL, 600)


async def test_a_new_hour_has_a_new_budget_within_its_day(account: Account) -> None:
    async with account.worker(total_usd_per_hour=4, total_usd_per_day=10) as budgets:
        spent = []
        for hour in range(4):
            account.now = NOON + timedelta(hours=hour)
            spent.append((await reserve_until_spent(budgets, "1"))[0])
        assert spent == [4, 4, 2, 0]
        account.now = NOON + timedelta(days=1)
        assert (await reserve_until_spent(budgets, "1"))[0] == 4


async def test_a_spent_tenant_holds_up_nobody_else(account: Account) -> None:
    async with account.worker(total_usd_per_day=10, tenant_usd_per_day=3) as budgets:
        assert await reserve_until_spent(budgets, "1", ONE) == (Decimal(3), BudgetScope.TENANT)
        assert await reserve_until_spent(budgets, "1", OTHER) == (Decimal(3), BudgetScope.TENANT)


async def test_workers_share_a_budget_and_together_never_pass_it(account: Account) -> None:
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(account.worker(total_usd_per_day=10)) for _ in range(4)]
        async with asyncio.TaskGroup() as tasks:
            runs = [tasks.create_task(reserve_until_spent(budgets, "0.1")) for budgets in workers]
        spent = sum(run.result()[0] for run in runs)
        assert Decimal("9.6") < spent <= 10, "each may hold a rest too small for one more call"


async def test_a_worker_that_leaves_gives_back_what_it_did_not_spend(account: Account) -> None:
    async with account.worker("0.5", total_usd_per_day=10) as budgets:
        (await budgets.reserve(ONE, Decimal(2))).settle(Decimal(1))
    async with account.worker(total_usd_per_day=10) as budgets:
        assert (await reserve_until_spent(budgets, "1"))[0] == 9


async def test_what_is_in_flight_when_a_worker_leaves_is_not_given_back(account: Account) -> None:
    async with account.worker("0.5", total_usd_per_day=10) as budgets:
        await budgets.reserve(ONE, Decimal(2))
    async with account.worker(total_usd_per_day=10) as budgets:
        assert (await reserve_until_spent(budgets, "1"))[0] == 8


async def test_a_lease_that_is_held_is_not_anothers_to_spend(account: Account) -> None:
    async with account.worker("0.5", total_usd_per_day=10) as holder:
        await holder.reserve(ONE, Decimal(2))
        async with account.worker(total_usd_per_day=10) as budgets:
            assert (await reserve_until_spent(budgets, "1"))[0] == 4, "the holder has 2 and half of the rest"


async def test_many_calls_at_once_are_reserved_each_in_full(account: Account) -> None:
    async with account.worker(total_usd_per_day=10) as budgets:

        async def reserve() -> bool:
            try:
                await budgets.reserve(ONE, Decimal("0.3"))
            except BudgetSpentError:
                return False
            return True

        async with asyncio.TaskGroup() as tasks:
            runs = [tasks.create_task(reserve()) for _ in range(50)]
        assert sum(run.result() for run in runs) == 33


async def test_a_call_that_no_budget_will_ever_hold_stops_the_worker(account: Account) -> None:
    """It would wait for its turn for ever."""
    async with account.worker(total_usd_per_hour=1, total_usd_per_day=10) as budgets:
        with pytest.raises(FatalError, match="budget"):
            await budgets.reserve(ONE, Decimal("1.5"))


async def test_a_tenants_budget_that_is_too_small_for_a_call_is_the_tenants_own_affair(account: Account) -> None:
    async with account.worker(tenant_usd_per_day=1) as budgets:
        with pytest.raises(BudgetSpentError):
            await budgets.reserve(ONE, Decimal("1.5"))


async def test_what_has_no_price_cannot_be_bounded(account: Account) -> None:
    async with account.worker(total_usd_per_hour=1) as budgets:
        with pytest.raises(FatalError, match="price"):
            await budgets.reserve(ONE, None)


async def test_leases_can_be_looked_at(account: Account) -> None:
    async with account.worker(total_usd_per_hour=10) as budgets:
        (await budgets.reserve(ONE, Decimal(2))).settle(Decimal(1))
        await budgets.reserve(ONE, Decimal("0.5"))
        ((window, lease),) = budgets.leases.items()
        assert (window.scope, window.starts_at) == (BudgetScope.TOTAL, NOON)
        assert (lease.held, lease.spent, lease.reserved) == (Decimal("2.8"), Decimal(1), Decimal("0.5"))
