"""The services that tests ask for, started once a run and only if a test asks: nothing here starts by itself.

`TEST_POSTGRES_DSN` and `TEST_KAFKA_BOOTSTRAP` name running ones to use instead. Tests of what only a real Apache Kafka
does are marked `kafka`; where it cannot be had they do not run, the summary says so, and under `CI=true` they fail.
"""

import os
import re
import uuid
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from tests.support.brokers import apache_kafka_or_reason
from tests.support.databases import Databases
from worker.embedded.broker import Broker
from worker.embedded.failure import LaunchError
from worker.embedded.kafka_jars import KAFKA_VERSION, default_cache, kafka_jars
from worker.embedded.postgres import PostgresServer
from worker.embedded.postgres_binaries import embedded_binaries, system_binaries
from worker.embedded.tansu import EmbeddedBroker
from worker.settings import PREFIX, LogFormat, LogSettings
from worker.telemetry import configure_logging

# A property holds or it does not; how long an example takes says something about the machine, not about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

APACHE_FIXTURES = {"apache_kafka", "kafka_broker"}
APACHE_MISSING = "Apache Kafka cannot be had"
THROW_AWAY = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "max_connections": "200"}
"""A cluster that ends with the run has nothing to save from a crash of the machine."""


def of_the_run(variable: str) -> str | None:
    """A setting of the test run; the worker's own are read by worker.settings alone."""
    return os.environ.get(variable) or None  # noqa: TID251  # not one of the worker's


def in_ci() -> bool:
    return (of_the_run("CI") or "").lower() in {"1", "true"}


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):  # noqa: TID251  # to scrub it
        if name.upper().startswith(PREFIX):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session", autouse=True)
def _logs_worth_reading() -> None:
    """What a failed test shows of the log: warnings, as lines."""
    configure_logging(LogSettings(level="warning", format=LogFormat.CONSOLE))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The DSN of a server where databases may be made: `TEST_POSTGRES_DSN`'s, the system's, or the embedded one."""
    given = of_the_run("TEST_POSTGRES_DSN")
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
def _apache_kafka_or_reason() -> Iterator[Broker | str]:
    with apache_kafka_or_reason(of_the_run("TEST_KAFKA_BOOTSTRAP")) as broker_or_reason:
        if isinstance(broker_or_reason, str) and in_ci():
            pytest.fail(f"{APACHE_MISSING}: {broker_or_reason}")
        yield broker_or_reason


@pytest.fixture(scope="session")
def apache_kafka(_apache_kafka_or_reason: Broker | str) -> Broker:
    """A real Apache Kafka: the one `TEST_KAFKA_BOOTSTRAP` names, else our own. For tests marked `kafka`."""
    if isinstance(_apache_kafka_or_reason, str):
        pytest.skip(f"{APACHE_MISSING}: {_apache_kafka_or_reason}")
    return _apache_kafka_or_reason


@pytest.fixture(scope="session")
def embedded_broker() -> Iterator[Broker]:
    """The embedded broker; mind its `settings_overrides`."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest, _apache_kafka_or_reason: Broker | str) -> Broker:
    """Apache Kafka, or the embedded broker where Apache Kafka cannot be had."""
    if isinstance(_apache_kafka_or_reason, str):
        embedded: Broker = request.getfixturevalue("embedded_broker")
        return embedded
    return _apache_kafka_or_reason


@pytest.fixture(
    params=[
        pytest.param("apache_kafka", id="apache", marks=pytest.mark.kafka),
        pytest.param("embedded_broker", id="embedded"),
    ]
)
def any_broker(request: pytest.FixtureRequest) -> Broker:
    """Both brokers, one after the other: for contracts that each must keep."""
    broker: Broker = request.getfixturevalue(request.param)
    return broker


@pytest.fixture
def topics_prefix(request: pytest.FixtureRequest) -> str:
    """Unique to this test, and telling whose it is: one broker serves the whole run."""
    words = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:60].strip("-")
    return f"{words}.{uuid.uuid4().hex[:8]}"


def needs_apache_kafka(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and bool(APACHE_FIXTURES & set(item.fixturenames))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test marked `kafka` runs on Apache Kafka or not at all, whichever broker fixture it names."""
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("kafka") is not None:
            # A new list: the old one is shared with the same test's other parameters.
            item.fixturenames = ["apache_kafka", *item.fixturenames]


def pytest_collection_finish(session: pytest.Session) -> None:
    """The one slow step of a first run, taken where no test's timeout runs."""
    wanted = not session.config.option.collectonly and any(needs_apache_kafka(item) for item in session.items)
    if not wanted or of_the_run("TEST_KAFKA_BOOTSTRAP") or default_cache().is_dir():
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"Fetching Apache Kafka {KAFKA_VERSION} (once) ...")
    try:
        kafka_jars()
    except LaunchError:
        return  # told by the fixture, which tries again and knows what follows


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """What did not run is said last, where it is read."""
    result = yield
    reports = [report for report in terminalreporter.stats.get("skipped", []) if APACHE_MISSING in str(report.longrepr)]
    if reports:
        reason = reports[0].longrepr[2].removeprefix("Skipped: ")
        terminalreporter.section("no Apache Kafka", yellow=True)
        terminalreporter.write_line(reason)
        terminalreporter.write_line(f"{len(reports)} tests did not run; the others had the embedded broker instead.")
    return result
