"""Settings for a real Kafka, and a broker of one's own for tests that stop it."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.brokers import TEST_PROPERTIES
from worker.embedded.apache_kafka import ApacheKafka
from worker.embedded.broker import Broker
from worker.settings import KafkaSettings

SettingsFor = Callable[..., KafkaSettings]


@pytest.fixture
def settings_for(topics_prefix: str) -> SettingsFor:
    """Settings with topics and a group of this test's own, and timeouts a test can wait for."""

    def build(broker: Broker, **overrides: object) -> KafkaSettings:
        return KafkaSettings.model_validate(
            {
                "session_timeout_ms": 6_000,
                "heartbeat_interval_ms": 100,
                "commit_interval_ms": 50,
                "commit_timeout_ms": 2_000,
                "poll_timeout_ms": 100,
                "outage_backoff_ms": 100,
                "rebalance_drain_ms": 5_000,
                "rebalance_timeout_ms": 15_000,
                **broker.settings_overrides(),
                "group_id": topics_prefix,
                "answers_topic": f"{topics_prefix}.answers",
                "attributions_topic": f"{topics_prefix}.attributions",
                "dead_letter_topic": f"{topics_prefix}.dead-letter",
                **overrides,
            }
        )

    return build


@pytest.fixture(scope="session")
def stoppable_kafka(apache_kafka: Broker) -> Iterator[ApacheKafka]:
    """An Apache Kafka that a test may stop and start, leaving it running: the run's own may be somebody else's."""
    with ApacheKafka(properties=TEST_PROPERTIES) as broker:
        yield broker
