"""Dead letters on a migrated database of the test's own."""

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from worker.adapters.postgres.store import PostgresStore, open_store
from worker.settings import DeadLetterSettings, PostgresSettings, Settings

COPY_BYTES_MAX = 65_536


@pytest.fixture
def settings(postgres_dsn: str) -> Settings:
    return Settings(
        postgres=PostgresSettings(dsn=SecretStr(postgres_dsn)),
        dead_letters=DeadLetterSettings(copy_bytes_max=COPY_BYTES_MAX),
    )


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[PostgresStore]:
    async with open_store(settings, code_version="test") as opened:
        yield opened
