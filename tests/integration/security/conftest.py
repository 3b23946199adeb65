"""A real Apache Kafka that lets in who it knows, over TLS, and a PostgreSQL server with a certificate."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.conftest import APACHE_MISSING, in_ci
from tests.support.brokers import TEST_PROPERTIES
from worker.embedded.apache_kafka import ApacheKafka
from worker.embedded.authority import Authority
from worker.embedded.failure import MissingPrerequisiteError
from worker.embedded.kafka_security import KafkaSecurity

WORKER = "worker"


@dataclass(frozen=True)
class SecuredKafka:
    """The broker and who it knows: `admin`, who may do everything, and `worker`, whom every test grants its rights."""

    broker: ApacheKafka
    security: KafkaSecurity


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def secured_kafka(authority: Authority) -> Iterator[SecuredKafka]:
    security = KafkaSecurity(authority, [WORKER])
    broker = ApacheKafka(properties=TEST_PROPERTIES, security=security)
    try:
        broker.start()
    except MissingPrerequisiteError as error:
        broker.close()
        if in_ci():
            pytest.fail(f"{APACHE_MISSING}: {error}")
        pytest.skip(f"{APACHE_MISSING}: {error}")
    yield SecuredKafka(broker, security)
    broker.close()
