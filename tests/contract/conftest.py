"""Each suite runs on the fake and on PostgreSQL: what tests believe of the one holds for the other."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import pytest
from pydantic import SecretStr

from tests.fakes.store import FakeStore
from worker.adapters.postgres.store import open_store
from worker.ports import AttributionStore, DeadLetterLimits, DeadLetterStore, OutboxStore
from worker.settings import DeadLetterSettings, PostgresSettings, Settings

LIMITS = DeadLetterSettings(consecutive_max=3, ratio_max=0.7, ratio_window=10)


class Store(AttributionStore, DeadLetterStore, DeadLetterLimits, OutboxStore, Protocol):
    """All that is kept in one place."""


OpenStore = Callable[[], AbstractAsyncContextManager[Store]]


@pytest.fixture(params=["fake", pytest.param("postgres", marks=pytest.mark.postgres)])
def open_again(request: pytest.FixtureRequest) -> OpenStore:
    """Opens a store object on what the test has stored so far, as a restarted worker would."""
    if request.param == "fake":
        fake = FakeStore(LIMITS)

        @asynccontextmanager
        async def same_fake() -> AsyncIterator[Store]:
            yield fake

        return same_fake
    dsn = request.getfixturevalue("postgres_dsn")
    settings = Settings(postgres=PostgresSettings(dsn=SecretStr(dsn)), dead_letters=LIMITS)
    return lambda: open_store(settings, code_version="test")


@pytest.fixture
async def store(open_again: OpenStore) -> AsyncIterator[Store]:
    async with open_again() as opened:
        yield opened
