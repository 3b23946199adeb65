"""One run for all tests of the corpus."""

import asyncio

import pytest

from tests.guarantees.hostile.run import Evidence, all_cases, run_hostile
from tests.support.databases import Databases
from worker.embedded.broker import Broker


@pytest.fixture(scope="session")
def evidence(kafka_broker: Broker, _databases: Databases) -> Evidence:
    """What is left when every hostile record went through one worker on a real broker and a real database."""
    with _databases.migrated() as dsn:
        return asyncio.run(run_hostile(kafka_broker, dsn, all_cases()))
