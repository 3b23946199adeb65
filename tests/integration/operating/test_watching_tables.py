"""What one look into real tables sees, and what a transaction done again leaves behind."""

from collections.abc import AsyncIterator
from decimal import Decimal

import asyncpg
import pytest
from pydantic import SecretStr
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from schemas.dead_letter import DeadLetterReason
from tests.support import samples
from tests.support.attributions import attribution_of, message_of
from worker.adapters.postgres.budgets import open_budgets
from worker.adapters.postgres.database import Database, open_database
from worker.adapters.postgres.store import open_store
from worker.adapters.postgres.watch import TablesWatch
from worker.core.budget import Period
from worker.core.model import TenantId
from worker.ports import DeadLetter
from worker.settings import BudgetSettings, DeadLetterSettings, PostgresSettings, Settings


@pytest.fixture
def settings(postgres_dsn: str) -> Settings:
    return Settings(
        postgres=PostgresSettings(dsn=SecretStr(postgres_dsn)),
        dead_letters=DeadLetterSettings(consecutive_max=2, ratio_max=1),
        budgets=BudgetSettings(total_usd_per_hour=Decimal(10), tenant_usd_per_day=Decimal(5)),
    )


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Database]:
    async with open_database(settings.postgres) as opened:
        yield opened


async def test_a_look_into_empty_tables_sees_nothing_waiting(database: Database, settings: Settings) -> None:
    seen = await TablesWatch(database, settings).look()
    assert (seen.outbox_pending, seen.outbox_age_s, seen.stopped_by) == (0, 0.0, None)
    assert seen.recent.outcomes == 0
    assert seen.budget_left_usd == {Period.HOUR: Decimal(10)}, "a tenant's budget is nobody's label"


async def test_a_look_sees_the_outbox_its_age_and_the_latest_outcomes(
    database: Database, settings: Settings, postgres_dsn: str
) -> None:
    watch = TablesWatch(database, settings)
    async with open_store(settings, code_version="test") as store:
        settled = attribution_of(samples.answer("a-1"))
        await store.save(settled, message_of(settled))
        for offset in range(2):
            letter = DeadLetter(samples.record(offset=offset), DeadLetterReason.NOT_JSON, "detail", 1)
            await store.save_dead_letter(letter, message_of(settled))
    connection = await asyncpg.connect(postgres_dsn)
    try:
        await connection.execute(
            "UPDATE outbox SET created_at = now() - interval '90 s' "
            "WHERE outbox_id = (SELECT min(outbox_id) FROM outbox)"
        )
    finally:
        await connection.close()

    seen = await watch.look()

    assert seen.outbox_pending == 3
    assert 90 <= seen.outbox_age_s < 3_600
    assert (seen.recent.consecutive, seen.recent.dead_letters, seen.recent.outcomes) == (2, 2, 3)
    assert seen.stopped_by is not None
    assert "resume" in seen.stopped_by


async def test_a_look_sees_what_all_workers_have_leased_of_the_total(database: Database, settings: Settings) -> None:
    async with (
        open_budgets(database, settings.budgets) as one,
        open_budgets(database, settings.budgets) as other,
    ):
        for budgets in (one, other):
            (await budgets.reserve(TenantId("t"), Decimal(2))).settle(Decimal(2))
        left = (await TablesWatch(database, settings).look()).budget_left_usd[Period.HOUR]
    assert Decimal(5) < left <= Decimal(6), "4 spent, and a little leased ahead"


@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "55P03"])
async def test_a_transaction_done_again_is_counted_by_its_sqlstate(database: Database, sqlstate: str) -> None:
    tries = []

    async def work(connection: AsyncConnection) -> str:
        tries.append(1)
        if len(tries) < 3:
            await connection.execute(text(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{sqlstate}'; END $$"))
        return "done"

    assert await database.run(work) == "done"
    assert database.retries == {sqlstate: 2}


async def test_a_connection_ended_by_the_server_is_counted_too(database: Database) -> None:
    tries = []

    async def work(connection: AsyncConnection) -> None:
        tries.append(1)
        if len(tries) == 1:
            await connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    await database.run(work)
    assert sum(database.retries.values()) == 1
    assert {sqlstate[:2] for sqlstate in database.retries} <= {"57", "08", "no"}, "as the driver happens to see it"
