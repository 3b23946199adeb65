"""The publisher on a real Kafka: codecs, refusals, outages."""

import asyncio
import gc

import pytest

from tests.integration.kafka.conftest import SettingsFor
from tests.support.kafka import consume, create_topic
from worker.adapters.kafka.producer import KafkaPublisher
from worker.core.records import OutboundMessage
from worker.embedded.apache_kafka import ApacheKafka
from worker.embedded.broker import Broker
from worker.errors import FatalError, UnavailableError

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [True, False])
async def test_every_codec_arrives(
    apache_kafka: Broker, settings_for: SettingsFor, codec: str | None, *, idempotent: bool
) -> None:
    """aiokafka#922, #1112: codecs that the installed client could not read, or could not write to newer brokers."""
    settings = settings_for(apache_kafka, compression_type=codec, enable_idempotence=idempotent)
    topic = await create_topic(apache_kafka, settings.attributions_topic)
    messages = [OutboundMessage(topic, b"key", b"attribution %d " % number * 100) for number in range(50)]

    async with KafkaPublisher(settings) as publisher:
        await publisher.publish(messages)

    assert [record.value for record in await consume(apache_kafka, topic, 50)] == [
        message.value for message in messages
    ]


async def test_a_topic_that_does_not_exist_is_named(apache_kafka: Broker, settings_for: SettingsFor) -> None:
    settings = settings_for(apache_kafka, request_timeout_ms=1_000)
    async with KafkaPublisher(settings) as publisher:
        with pytest.raises(FatalError, match=f"no such topic: {settings.attributions_topic}; run"):
            await publisher.publish([OutboundMessage(settings.attributions_topic, b"k", b"v")])


async def test_a_message_above_our_own_limit_is_refused_before_it_is_sent(
    apache_kafka: Broker, settings_for: SettingsFor
) -> None:
    settings = settings_for(apache_kafka, message_bytes_max=2_000)
    topic = await create_topic(apache_kafka, settings.attributions_topic)
    async with KafkaPublisher(settings) as publisher:
        with pytest.raises(FatalError, match=r"above kafka\.message_bytes_max"):
            await publisher.publish([OutboundMessage(topic, b"k", b"v" * 3_000)])


async def test_a_message_above_the_topics_limit_is_refused_for_good(
    apache_kafka: Broker, settings_for: SettingsFor
) -> None:
    settings = settings_for(apache_kafka, compression_type=None)
    topic = await create_topic(apache_kafka, settings.attributions_topic, configs={"max.message.bytes": "1000"})
    async with KafkaPublisher(settings) as publisher:
        with pytest.raises(FatalError, match="refused for good: MessageSizeTooLargeError"):
            await publisher.publish([OutboundMessage(topic, b"k", b"v" * 3_000)])


async def test_a_publisher_outlives_its_brokers_restart(
    stoppable_kafka: ApacheKafka, settings_for: SettingsFor
) -> None:
    settings = settings_for(stoppable_kafka, request_timeout_ms=1_000)
    topic = await create_topic(stoppable_kafka, settings.attributions_topic)
    before, after = (OutboundMessage(topic, b"k", value) for value in (b"before", b"after"))
    async with KafkaPublisher(settings) as publisher:
        await publisher.publish([before])
        await asyncio.to_thread(stoppable_kafka.kill)
        for _ in range(2):
            with pytest.raises(UnavailableError, match="publishing"):
                await publisher.publish([after])
        await asyncio.to_thread(stoppable_kafka.start)
        while True:
            try:
                await publisher.publish([after])
            except UnavailableError:
                continue
            break

    values = [record.value for record in await consume(stoppable_kafka, topic, 2)]
    assert values == [b"before", b"after"]


async def test_a_publisher_whose_broker_is_gone_stops_all_the_same(
    stoppable_kafka: ApacheKafka, settings_for: SettingsFor
) -> None:
    settings = settings_for(stoppable_kafka)
    topic = await create_topic(stoppable_kafka, settings.attributions_topic)
    async with KafkaPublisher(settings) as publisher:
        await publisher.publish([OutboundMessage(topic, b"k", b"v")])
        await asyncio.to_thread(stoppable_kafka.kill)
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(publisher.publish([OutboundMessage(topic, b"k", b"lost")]))
            await asyncio.sleep(0)
            publishing.cancel()
    await asyncio.to_thread(stoppable_kafka.start)


# aiokafka drops the connection it was making when it is cancelled; it is collected here, not in whichever test is next.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("turns", [1, 3, 10, 30])
async def test_a_publisher_cancelled_while_it_connects_publishes_the_next_time(
    kafka_broker: Broker, settings_for: SettingsFor, turns: int
) -> None:
    """A worker stopped within moments of its first record took half a minute to leave."""
    settings = settings_for(kafka_broker)
    topic = await create_topic(kafka_broker, settings.attributions_topic)
    message = OutboundMessage(topic, b"k", b"v")
    async with KafkaPublisher(settings) as publisher:
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(publisher.publish([message]))
            for _ in range(turns):
                await asyncio.sleep(0)
            publishing.cancel()
        async with asyncio.timeout(10):
            await publisher.publish([message])
    gc.collect()
