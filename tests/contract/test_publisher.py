"""What every `Publisher` must do: the fake, Apache Kafka and the embedded broker alike."""

from collections import defaultdict
from collections.abc import AsyncIterator

import pytest

from tests.fakes.stream import FakePublisher
from tests.support.kafka import consume, create_topic
from worker.adapters.kafka.producer import KafkaPublisher
from worker.core.records import OutboundMessage
from worker.embedded.broker import Broker
from worker.ports import Publisher
from worker.settings import KafkaSettings


class Outlet:
    """A publisher, and a way to read what it published to one topic."""

    def __init__(self, publisher: Publisher, topic: str, broker: Broker | None) -> None:
        self.publisher = publisher
        self.topic = topic
        self._broker = broker

    async def published(self, count: int) -> list[OutboundMessage]:
        if self._broker is None:
            assert isinstance(self.publisher, FakePublisher)
            return self.publisher.published[self.topic]
        records = await consume(self._broker, self.topic, count)
        return [
            OutboundMessage(record.topic, record.key, record.value, record.headers)
            for record in sorted(records, key=lambda record: (record.partition, record.offset))
        ]


@pytest.fixture(params=["fake", pytest.param("apache", marks=pytest.mark.kafka), "embedded"])
async def outlet(request: pytest.FixtureRequest, topics_prefix: str) -> AsyncIterator[Outlet]:
    if request.param == "fake":
        yield Outlet(FakePublisher(), topics_prefix, None)
        return
    name = {"apache": "apache_kafka", "embedded": "embedded_broker"}[request.param]
    broker: Broker = request.getfixturevalue(name)
    topic = await create_topic(broker, topics_prefix, partitions=3)
    async with KafkaPublisher(KafkaSettings.model_validate(dict(broker.settings_overrides()))) as publisher:
        yield Outlet(publisher, topic, broker)


def by_key(messages: list[OutboundMessage]) -> dict[bytes | None, list[bytes | None]]:
    values: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    for message in messages:
        values[message.key].append(message.value)
    return values


async def test_every_message_arrives_and_those_of_a_key_in_order(outlet: Outlet) -> None:
    messages = [
        OutboundMessage(outlet.topic, b"key%d" % (number % 5), b"%d" % number, ((f"h{number}", b"x"),))
        for number in range(100)
    ]

    await outlet.publisher.publish(messages[:60])
    await outlet.publisher.publish(messages[60:])

    published = await outlet.published(100)
    assert by_key(published) == by_key(messages)
    assert {message.headers for message in published} == {message.headers for message in messages}


async def test_keys_values_and_headers_arrive_byte_for_byte(outlet: Outlet) -> None:
    awkward = [
        OutboundMessage(outlet.topic, b"\x00\xff", b"\xfe\x00", (("a", b""), ("a", b"\xff"), ("é", b"2"))),
        OutboundMessage(outlet.topic, b"\x00\xff", None),
        OutboundMessage(outlet.topic, b"\x00\xff", b""),
        OutboundMessage(outlet.topic, None, b"no key"),
        OutboundMessage(outlet.topic, b"\x00\xff", b"x" * 900_000),
    ]

    await outlet.publisher.publish(awkward)

    assert by_key(await outlet.published(5)) == by_key(awkward)
    with_headers = [message for message in await outlet.published(5) if message.headers]
    assert [message.headers for message in with_headers] == [awkward[0].headers]


async def test_publishing_nothing_is_nothing(outlet: Outlet) -> None:
    await outlet.publisher.publish([])
