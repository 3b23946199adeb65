"""The `cloudevents` package is the oracle: what it writes we read, what we write it reads."""

import json
from typing import Any

import pytest
from cloudevents.core.bindings import kafka as core_kafka
from cloudevents.core.v1.event import CloudEvent as CoreEvent
from cloudevents.v1 import kafka as v1_kafka
from cloudevents.v1.http import CloudEvent as V1Event
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.codec.attributions import PUBLISHED, attributions
from tests.unit.codec.records import TYPE, decode, event
from tests.unit.codec.test_attributions import encode
from worker.codec import event_id
from worker.core.model import Answer, Attribution
from worker.core.records import Headers, OutboundMessage

ATTRIBUTES = {"type": TYPE, "source": "/search/eu", "id": "e-1", "datacontenttype": "application/json"}
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
events = st.builds(lambda query, answer: event(query=query, answer=answer), texts, texts)


def headers_of(message: Any) -> Headers:
    return tuple(message.headers.items())


def by_v1_binary(data: dict[str, Any]) -> Answer:
    message = v1_kafka.to_binary(V1Event(dict(ATTRIBUTES), data))
    return decode(message.value, headers_of(message)).answer


def by_v1_structured(data: dict[str, Any]) -> Answer:
    message = v1_kafka.to_structured(V1Event(dict(ATTRIBUTES), data))
    return decode(message.value, headers_of(message)).answer


def by_v1_structured_bytes(data: dict[str, Any]) -> Answer:
    message = v1_kafka.to_structured(V1Event(dict(ATTRIBUTES), json.dumps(data).encode()))
    assert "data_base64" in json.loads(message.value)
    return decode(message.value, headers_of(message)).answer


def by_core_binary(data: dict[str, Any]) -> Answer:
    message = core_kafka.to_binary_event(CoreEvent(dict(ATTRIBUTES), data))
    return decode(message.value, headers_of(message)).answer


def by_core_structured(data: dict[str, Any]) -> Answer:
    message = core_kafka.to_structured_event(CoreEvent(dict(ATTRIBUTES), data))
    return decode(message.value, headers_of(message)).answer


def by_core_structured_bytes(data: dict[str, Any]) -> Answer:
    message = core_kafka.to_structured_event(CoreEvent(dict(ATTRIBUTES), json.dumps(data).encode()))
    return decode(message.value, headers_of(message)).answer


@pytest.mark.parametrize(
    "sent",
    [
        by_v1_binary,
        by_v1_structured,
        by_v1_structured_bytes,
        by_core_binary,
        by_core_structured,
        by_core_structured_bytes,
    ],
    ids=lambda sent: sent.__name__,
)
@given(data=events)
def test_an_event_sent_with_the_sdk_is_the_answer_sent_as_bare_json(sent: Any, data: dict[str, Any]) -> None:
    assert sent(data) == decode(data).answer


def texts_of(headers: Headers) -> dict[str, bytes]:
    return {name: value for name, value in headers if value is not None}


def received(message: OutboundMessage) -> Any:
    assert message.value is not None
    return core_kafka.from_binary_event(core_kafka.KafkaMessage(texts_of(message.headers), message.key, message.value))


@given(attributions())
def test_the_sdk_reads_what_is_published(attribution: Attribution) -> None:
    message = encode(attribution)
    assert message.value is not None
    cloud_event = received(message)
    assert cloud_event.get_specversion() == "1.0"
    assert cloud_event.get_type() == "attribution-worker.attribution.computed.v1"
    assert cloud_event.get_source() == "urn:attribution-worker:demo"
    assert cloud_event.get_id() == str(event_id(attribution.answer.key, attribution.revision))
    assert cloud_event.get_time().isoformat() == "2026-06-01T12:00:00.250000+00:00"
    assert cloud_event.get_data() == json.loads(message.value)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_older_sdk_reads_it_too(name: str) -> None:
    message = encode(PUBLISHED[name])
    assert message.key is not None
    assert message.value is not None
    cloud_event = v1_kafka.from_binary(v1_kafka.KafkaMessage(texts_of(message.headers), message.key, message.value))
    assert cloud_event["id"] == str(event_id(PUBLISHED[name].answer.key, PUBLISHED[name].revision))
    assert cloud_event.get_data() == json.loads(message.value)
