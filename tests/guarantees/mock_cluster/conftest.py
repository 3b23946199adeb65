"""A misbehaving cluster of three nodes, and settings with timeouts that a test can wait for."""

import asyncio
import gc
from collections.abc import Callable, Iterator

import pytest
from aiokafka.consumer.group_coordinator import CoordinatorGroupRebalance

from tests.guarantees.mock_cluster.answers_topic import AnswersTopic
from tests.support.mock_kafka import MockKafka
from worker.settings import KafkaSettings

NODES = 3
SEEDS = (1, 2)

SettingsFor = Callable[..., KafkaSettings]


@pytest.fixture
def cluster() -> Iterator[MockKafka]:
    with MockKafka(NODES) as cluster:
        yield cluster


@pytest.fixture
def settings_for(cluster: MockKafka) -> SettingsFor:
    def build(**overrides: object) -> KafkaSettings:
        return KafkaSettings.model_validate(
            {
                # The mock waits for members to rejoin for what is above a second, and a second for one that is gone.
                "session_timeout_ms": 1_050,
                "heartbeat_interval_ms": 100,
                "commit_interval_ms": 20,
                "commit_timeout_ms": 500,
                "poll_timeout_ms": 50,
                "outage_backoff_ms": 50,
                "rebalance_drain_ms": 1_000,
                "rebalance_timeout_ms": 3_000,
                # A join is answered when everybody has joined: it must outlast that.
                "request_timeout_ms": 5_000,
                **cluster.settings_overrides(),
                **overrides,
            }
        )

    return build


@pytest.fixture
def answers(cluster: MockKafka, settings_for: SettingsFor) -> AnswersTopic:
    return AnswersTopic(cluster, settings_for(), partitions=2)


@pytest.fixture
def drops_connections() -> Iterator[None]:
    """aiokafka drops a connection that it was making when it is stopped: it is collected here, not in the next test."""
    yield
    gc.collect()


@pytest.fixture
def leaders_sync_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mock's group is in sync once its leader is, and refuses a member that comes later: so leaders are late."""
    lead = CoordinatorGroupRebalance._on_join_leader

    async def lead_late(rebalance: CoordinatorGroupRebalance, response: object) -> object:
        await asyncio.sleep(0.1)
        return await lead(rebalance, response)

    monkeypatch.setattr(CoordinatorGroupRebalance, "_on_join_leader", lead_late)
