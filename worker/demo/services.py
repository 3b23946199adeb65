"""The broker and the database of a demo: the ones the settings name, else our own for as long as it lasts."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import StrEnum

from worker.embedded.apache_kafka import ApacheKafka
from worker.embedded.broker import Broker
from worker.embedded.postgres import PostgresServer
from worker.embedded.tansu import EmbeddedBroker
from worker.settings import Settings


class BrokerName(StrEnum):
    EMBEDDED = "embedded"
    APACHE = "apache"


@contextmanager
def services(settings: Settings, broker: BrokerName, say: Callable[[str], None]) -> Iterator[Settings]:
    """Settings that name running services; what was started here is gone when the context is left.

    Raises:
        LaunchError: a service did not start.
    """
    changes: dict[str, Mapping[str, object]] = {}
    with ExitStack() as stack:
        if "bootstrap_servers" in settings.kafka.model_fields_set:
            say(f"Kafka: yours, at {settings.kafka.bootstrap_servers}")
        else:
            started = stack.enter_context(_broker(broker))
            say(f"Kafka: {started.name}, started at {started.bootstrap_servers}")
            changes["kafka"] = {"partitions": 3, **started.settings_overrides()}
        if "dsn" in settings.postgres.model_fields_set:
            say("PostgreSQL: yours, from ATTRIBUTION_POSTGRES__DSN")
        else:
            postgres = stack.enter_context(PostgresServer())
            say(f"PostgreSQL: embedded, started at 127.0.0.1:{postgres.port}")
            changes["postgres"] = {"dsn": postgres.dsn}
        yield settings.overridden(changes)


def _broker(name: BrokerName) -> Broker:
    match name:
        case BrokerName.EMBEDDED:
            return EmbeddedBroker()
        case BrokerName.APACHE:
            return ApacheKafka()
