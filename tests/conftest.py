"""The services that tests ask for, started once a run and only if a test asks: nothing here starts by itself."""

import os
import re
import uuid
from collections.abc import Iterator

import pytest

from tests.support.brokers import ApacheKafkaMissingError, RunningBroker, start_apache_kafka
from tests.support.databases import Databases
from worker.embedded.broker import Broker
from worker.embedded.postgres import PostgresServer
from worker.embedded.postgres_binaries import embedded_binaries, system_binaries
from worker.embedded.tansu import EmbeddedBroker
from worker.settings import PREFIX

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}  # noqa: TID251  # of the run, not of the worker
APACHE_ABSENCE = pytest.StashKey[str]()
NOT_RUN = pytest.StashKey[set[str]]()
THROW_AWAY = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "max_connections": "200"}
"""A cluster that ends with the run has nothing to save from a crash of the machine."""


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):  # noqa: TID251  # to scrub it
        if name.upper().startswith(PREFIX):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The DSN of a PostgreSQL where we may create databases: `TEST_POSTGRES_DSN`, the system's, or the embedded one."""
    given = os.environ.get("TEST_POSTGRES_DSN")  # noqa: TID251  # of the run, not of the worker
    if given:
        yield given
        return
    with PostgresServer(system_binaries() or embedded_binaries(), parameters=THROW_AWAY) as server:
        yield server.dsn


@pytest.fixture(scope="session")
def _databases(postgres_server: str) -> Iterator[Databases]:
    databases = Databases(postgres_server)
    yield databases
    databases.close()


@pytest.fixture
def postgres_dsn(_databases: Databases) -> Iterator[str]:
    """A database of this test's own, migrated."""
    with _databases.migrated() as dsn:
        yield dsn


@pytest.fixture
def empty_postgres_dsn(_databases: Databases) -> Iterator[str]:
    """A database of this test's own, with nothing in it."""
    with _databases.empty() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def apache_kafka(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """A real Apache Kafka: the one `TEST_KAFKA_BOOTSTRAP` names, else our own. For tests marked `kafka`."""
    given = os.environ.get("TEST_KAFKA_BOOTSTRAP")  # noqa: TID251  # of the run, not of the worker
    if given:
        yield RunningBroker(given)
        return
    with start_apache_kafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def embedded_broker() -> Iterator[Broker]:
    """The embedded broker; what it cannot do is in its settings_overrides."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Broker:
    """Apache Kafka, or the embedded broker where Apache Kafka cannot be had and the run is not CI's."""
    try:
        broker: Broker = request.getfixturevalue("apache_kafka")
    except ApacheKafkaMissingError as error:
        if IN_CI:
            raise
        request.config.stash[APACHE_ABSENCE] = str(error)
        broker = request.getfixturevalue("embedded_broker")
    return broker


@pytest.fixture(params=["apache", "embedded"])
def any_broker(request: pytest.FixtureRequest) -> Broker:
    """Either broker, one after the other: for contracts that both must keep."""
    broker: Broker = request.getfixturevalue({"apache": "apache_kafka", "embedded": "embedded_broker"}[request.param])
    return broker


@pytest.fixture
def topics_prefix(request: pytest.FixtureRequest) -> str:
    """Unique to this test, and telling whose it is: one broker serves the whole run."""
    words = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:60].strip("-")
    return f"{words}.{uuid.uuid4().hex[:8]}"
