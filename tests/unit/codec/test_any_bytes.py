import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.codec.records import TYPE, Limits, decode, event
from tests.unit.schemas.examples import VALID, Example
from worker.codec import Decoded, read_answer_key
from worker.core.records import Headers, Record
from worker.errors import PermanentError

# Lone surrogates belong to what arrives: json.dumps writes them as escapes.
any_text = st.text(st.characters(codec=None), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(any_text, children, max_size=4),
    max_leaves=10,
)
field_names = st.sampled_from(
    [
        "schema_version",
        "answer_id",
        "tenant",
        "occurred_at",
        "query",
        "answer",
        "sources",
        "search_llm",
        "reward",
        "labels",
    ]
)
any_headers = st.lists(
    st.tuples(
        st.sampled_from(["content-type", "ce_type", "ce_specversion", "ce_id", "ce_source", "traceparent", "ce_\ud800"])
        | any_text,
        st.sampled_from([b"application/json", b"application/cloudevents+json", TYPE.encode(), b"1.0"])
        | st.binary(max_size=20)
        | st.none(),
    ),
    max_size=6,
).map(tuple)


def decoded_or_dead_letter(value: bytes, headers: Headers = ()) -> Decoded | PermanentError:
    """Whatever else is raised fails the test: no parser's exception may reach the loop that iterates over records."""
    read_answer_key(Record("answers", 0, 0, 0, None, value, headers))
    try:
        return decode(value, headers, Limits(event_bytes_max=200_000))
    except PermanentError as error:
        return error


@given(st.binary(max_size=300), any_headers)
@example(b"", ())
@example(b"[" * 150_000, ())
@example(b'{"a":' * 30_000, ())
@example(b"9" * 5_000, ())
@example(b'{"schema_version":' + b"9" * 4_400 + b"}", ())
@example(b"\xed\xa0\x80", ())
def test_any_bytes_are_decoded_or_a_dead_letter_kafka_python_545(value: bytes, headers: Headers) -> None:
    decoded_or_dead_letter(value, headers)


@given(st.sampled_from(VALID), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4), st.data())
def test_a_damaged_event_is_decoded_or_a_dead_letter(
    source: Example, damage: list[tuple[int, int]], data: st.DataObject
) -> None:
    value = bytearray(source.value)
    for position, byte in damage:
        value[position % len(value)] = byte
    start = data.draw(st.integers(0, len(value)))
    end = data.draw(st.integers(start, min(start + 5, len(value))))
    del value[start:end]
    decoded_or_dead_letter(bytes(value), source.headers)


@given(st.dictionaries(field_names, json_values, max_size=3), any_headers)
def test_an_event_with_any_values_is_decoded_or_a_dead_letter(changes: dict[str, Any], headers: Headers) -> None:
    decoded_or_dead_letter(json.dumps(event(**changes)).encode(), headers)


@given(st.dictionaries(st.sampled_from(["source_id", "text", "owner_id", "title", "extra"]), json_values))
def test_a_source_with_any_values_is_decoded_or_a_dead_letter(changes: dict[str, Any]) -> None:
    source = {"source_id": "s1", "text": "Text.", **changes}
    decoded_or_dead_letter(json.dumps(event(sources=[source])).encode())


envelope_names = st.sampled_from(
    ["specversion", "type", "id", "source", "datacontenttype", "traceparent", "data", "data_base64"]
)


@given(st.dictionaries(envelope_names, json_values, max_size=3))
def test_an_envelope_with_any_values_is_decoded_or_a_dead_letter(changes: dict[str, Any]) -> None:
    envelope = {"specversion": "1.0", "type": TYPE, "id": "1", "source": "/s", "data": event(), **changes}
    decoded_or_dead_letter(json.dumps(envelope).encode())


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
def test_what_is_decoded_can_always_be_stored_as_utf8_without_nul_sentry_10752(text: str) -> None:
    decoded = decode(event(query=text, answer=text, labels={"label": text}))
    answer = decoded.answer
    for stored in (answer.query, answer.text, answer.labels["label"]):
        assert "\0" not in stored
        stored.encode()
