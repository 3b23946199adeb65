"""A store on a migrated database of the test's own, and a bare connection to look at it and to disturb it."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
from pydantic import SecretStr

from worker.adapters.postgres.database import Database, open_database
from worker.adapters.postgres.journal import PostgresCallJournal, open_call_journal
from worker.adapters.postgres.store import PostgresStore, open_store
from worker.settings import PostgresSettings, Settings, TextStorage


@pytest.fixture
def settings(postgres_dsn: str) -> Settings:
    return Settings(postgres=PostgresSettings(dsn=SecretStr(postgres_dsn)))


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[PostgresStore]:
    async with open_store(settings, code_version="test") as opened:
        yield opened


@pytest.fixture
async def sql(postgres_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Database]:
    async with open_database(settings.postgres) as opened:
        yield opened


@pytest.fixture
async def journal(database: Database) -> AsyncIterator[PostgresCallJournal]:
    async with open_call_journal(database, TextStorage.FULL) as opened:
        yield opened
