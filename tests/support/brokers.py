"""Brokers of a test run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from worker.embedded.apache_kafka import ApacheKafka
from worker.embedded.broker import Broker
from worker.embedded.failure import MissingPrerequisiteError

TEST_PROPERTIES = {
    # Tests of sessions that end want them short; the default minimum is 6 s.
    "group.min.session.timeout.ms": "500",
}


class RunningBroker:
    """A broker that somebody else runs: not ours to start or to end."""

    name = "running"

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def settings_overrides(self) -> Mapping[str, object]:
        return {"bootstrap_servers": self.bootstrap_servers}

    def start(self) -> None:
        """It runs."""

    def stop(self) -> None:
        raise NotImplementedError("not ours to stop")

    def kill(self) -> None:
        raise NotImplementedError("not ours to kill")

    def close(self) -> None:
        """Not ours."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


@contextmanager
def apache_kafka_or_reason(bootstrap_servers: str | None) -> Iterator[Broker | str]:
    """A running Apache Kafka (the given one, else our own), or what is missing to have one."""
    if bootstrap_servers:
        yield RunningBroker(bootstrap_servers)
        return
    broker = ApacheKafka(properties=TEST_PROPERTIES)
    try:
        broker.start()
    except MissingPrerequisiteError as error:
        yield str(error)
    else:
        yield broker
    finally:
        broker.close()
