"""Publishing: every answer to a batch, to the producer's own beginning, and nodes that are slow, gone, or move."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.guarantees.mock_cluster.answers_topic import PATIENCE_S, everything_in
from tests.guarantees.mock_cluster.conftest import NODES, SettingsFor
from tests.support.mock_kafka import Api, Code, MockKafka
from worker.adapters.kafka.producer import KafkaPublisher
from worker.core.records import OutboundMessage
from worker.errors import FatalError, UnavailableError

TOPIC = "attributions"
VALUES = {b"%d" % number for number in range(9)}
MESSAGES = [OutboundMessage(TOPIC, b"key %d" % (int(value) % 3), value) for value in sorted(VALUES)]

RIDDEN_OUT = [
    Code.CONNECTION_CLOSED,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.LEADER_NOT_AVAILABLE,
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.REQUEST_TIMED_OUT,
    Code.NOT_ENOUGH_REPLICAS,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Code.KAFKA_STORAGE_ERROR,
]
UNAVAILABLE = [Code.UNKNOWN_SERVER_ERROR, Code.CORRUPT_MESSAGE, Code.FENCED_LEADER_EPOCH]
FATAL = {
    Code.MESSAGE_TOO_LARGE: "refused for good: MessageSizeTooLargeError",
    Code.RECORD_LIST_TOO_LARGE: "refused for good: RecordListTooLargeError",
    Code.INVALID_TOPIC: "refused for good: InvalidTopicError",
    Code.TOPIC_AUTHORIZATION_FAILED: "no access: TopicAuthorizationFailedError",
    Code.CLUSTER_AUTHORIZATION_FAILED: "no access: ClusterAuthorizationFailedError",
}


@pytest.fixture
async def publisher(cluster: MockKafka, settings_for: SettingsFor) -> AsyncIterator[KafkaPublisher]:
    cluster.create_topic(TOPIC, partitions=2)
    async with KafkaPublisher(settings_for(request_timeout_ms=1_000)) as publisher:
        yield publisher


async def publish_at_last(publisher: KafkaPublisher) -> int:
    """As the relay does: again while it is an outage. How often it was one."""
    async with asyncio.timeout(PATIENCE_S):
        outages = 0
        while True:
            try:
                await publisher.publish(MESSAGES)
            except UnavailableError:
                outages += 1
            else:
                return outages


async def published(cluster: MockKafka) -> list[bytes]:
    return [record.value for record in await everything_in(cluster, TOPIC, partitions=2)]


@pytest.mark.parametrize("code", RIDDEN_OUT, ids=lambda code: code.name)
async def test_a_batch_that_is_not_taken_yet_is_sent_again_and_arrives_once(
    cluster: MockKafka, publisher: KafkaPublisher, code: Code
) -> None:
    cluster.fail(Api.PRODUCE, code, code)

    assert await publish_at_last(publisher) == 0
    assert sorted(await published(cluster)) == sorted(VALUES)


@pytest.mark.parametrize("code", UNAVAILABLE, ids=lambda code: code.name)
async def test_a_batch_that_fails_for_now_is_an_outage(
    cluster: MockKafka, publisher: KafkaPublisher, code: Code
) -> None:
    cluster.fail(Api.PRODUCE, *[code] * 2 * NODES)

    assert await publish_at_last(publisher) >= 1
    assert set(await published(cluster)) == VALUES


@pytest.mark.parametrize("code", FATAL, ids=lambda code: code.name)
async def test_a_batch_that_is_refused_for_good_stops_the_relay(
    cluster: MockKafka, publisher: KafkaPublisher, code: Code
) -> None:
    cluster.fail(Api.PRODUCE, *[code] * NODES)

    with pytest.raises(FatalError, match=FATAL[code]):
        await publisher.publish(MESSAGES)


@pytest.mark.parametrize(
    "code",
    [Code.CONNECTION_CLOSED, Code.UNKNOWN_SERVER_ERROR, Code.REQUEST_TIMED_OUT, Code.COORDINATOR_LOAD_IN_PROGRESS],
    ids=lambda code: code.name,
)
async def test_a_producer_that_gets_no_id_yet_is_an_outage_and_not_a_missing_topic(
    cluster: MockKafka, publisher: KafkaPublisher, code: Code
) -> None:
    """A topic that the client had not come to yet was taken for one that does not exist, and stopped the worker."""
    cluster.fail(Api.INIT_PRODUCER_ID, code, code)

    await publish_at_last(publisher)
    assert set(await published(cluster)) == VALUES


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("drops_connections")
async def test_a_cluster_that_goes_away_before_it_has_told_its_topics_is_an_outage(
    cluster: MockKafka, publisher: KafkaPublisher
) -> None:
    cluster.slow(1_500)
    with pytest.raises(UnavailableError, match="publishing"):
        await publisher.publish(MESSAGES)
    cluster.slow(0)

    await publish_at_last(publisher)
    assert set(await published(cluster)) == VALUES


async def test_a_topic_that_is_not_there_is_named_although_others_are(
    cluster: MockKafka, publisher: KafkaPublisher
) -> None:
    await publisher.publish(MESSAGES)
    cluster.refuse_topic(TOPIC, Code.UNKNOWN_TOPIC_OR_PARTITION)
    async with KafkaPublisher(publisher._settings) as another:
        with pytest.raises(FatalError, match="no such topic: attributions; run `attribution-worker topics`"):
            await another.publish(MESSAGES)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("drops_connections")
async def test_leaders_that_move_and_nodes_that_go_lose_no_message(
    cluster: MockKafka, publisher: KafkaPublisher
) -> None:
    for partition in range(2):
        cluster.lead(TOPIC, partition, 1)
    await publisher.publish(MESSAGES)
    cluster.stop(1)
    for partition in range(2):
        cluster.lead(TOPIC, partition, 2 + partition)

    await publish_at_last(publisher)
    values = await published(cluster)
    assert set(values) == VALUES
    assert len(values) >= 2 * len(MESSAGES)
