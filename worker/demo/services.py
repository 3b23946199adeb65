"""The broker and the database of a demo: the ones the settings name, else our own for as long as it lasts."""

import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import StrEnum

from worker.embedded.apache_kafka import ApacheKafka
from worker.embedded.broker import Broker
from worker.embedded.postgres import PostgresServer
from worker.embedded.postgres_binaries import embedded_binaries
from worker.embedded.tansu import EmbeddedBroker
from worker.settings import JudgeSettings, Settings


class BrokerName(StrEnum):
    EMBEDDED = "embedded"
    APACHE = "apache"


@contextmanager
def services(settings: Settings, broker: BrokerName, say: Callable[[str], None]) -> Iterator[Settings]:
    """Settings that name running services and the local judge; what was started here is gone when the context is left.

    Raises:
        LaunchError: a service did not start.
    """
    # Whatever judge is configured: a first look costs nothing.
    local = settings.model_copy(update={"judge": JudgeSettings()})
    changes: dict[str, Mapping[str, object]] = {}
    with ExitStack() as stack:
        if "bootstrap_servers" in settings.kafka.model_fields_set:
            say(f"Kafka: yours, at {settings.kafka.bootstrap_servers}")
        else:
            started = stack.enter_context(_broker(broker))
            say(f"Kafka: {started.name}, started at {started.bootstrap_servers}")
            changes["kafka"] = {"partitions": 3, **started.settings_overrides()}
        if not is_own_postgres(settings):
            say("PostgreSQL: yours, from ATTRIBUTION_POSTGRES__DSN")
        else:
            postgres = stack.enter_context(PostgresServer())
            say(f"PostgreSQL: embedded, started at 127.0.0.1:{postgres.port}")
            changes["postgres"] = {"dsn": postgres.dsn}
        yield local.overridden(changes)


def is_own_postgres(settings: Settings) -> bool:
    """Whether the demo starts the database itself."""
    return "dsn" not in settings.postgres.model_fields_set


def psql() -> str:
    """The installed client, or the one that came with the embedded server, ready for a shell."""
    return "psql" if shutil.which("psql") else shlex.quote(str(embedded_binaries() / "psql"))


def _broker(name: BrokerName) -> Broker:
    match name:
        case BrokerName.EMBEDDED:
            return EmbeddedBroker()
        case BrokerName.APACHE:
            return ApacheKafka()
