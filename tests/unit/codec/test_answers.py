import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.dead_letter import DeadLetterReason
from tests.unit.codec.records import TYPE, Limits, decode, event, record
from tests.unit.schemas.examples import NOW
from worker.codec import decode_answer, read_answer_key
from worker.core.model import AnswerId, AnswerKey, SearchUsage, TenantId
from worker.core.records import Headers, Record
from worker.errors import PermanentError

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER_TRACEPARENT = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-00f067aa0ba902b7-01"
BINARY: Headers = (
    ("ce_specversion", b"1.0"),
    ("ce_type", TYPE.encode()),
    ("ce_id", b"1"),
    ("ce_source", b"/search"),
)
NUL = "\0"


def refusal(value: Any, headers: Headers = (), limits: Limits = Limits()) -> PermanentError:  # noqa: B008 - frozen
    with pytest.raises(PermanentError) as raised:
        decode(value, headers, limits)
    return raised.value


def test_every_field_arrives_as_it_was_sent() -> None:
    source = {"source_id": "s", "text": "t", "owner_id": "o", "url": "u", "title": "", "license_ref": "l"}
    answer = decode(
        event(
            tenant="eu",
            occurred_at="2026-05-31T11:30:00.5+02:00",
            sources=[source],
            search_llm={"model": "m", "tokens": 7},
            reward={"amount": "12.50", "currency": "EUR"},
            labels={"surface": "mobile"},
        )
    ).answer
    assert answer.key == AnswerKey(TenantId("eu"), AnswerId("a-1"))
    assert answer.occurred_at == datetime(2026, 5, 31, 9, 30, 0, 500_000, tzinfo=UTC)
    assert answer.occurred_at.tzinfo is UTC
    assert {name: getattr(answer.sources[0], name) for name in source} == source
    assert answer.search_usage == SearchUsage("m", 7)
    assert answer.reward is not None
    assert (str(answer.reward.amount), answer.reward.currency) == ("12.50", "EUR")
    assert answer.labels == {"surface": "mobile"}


def test_a_tombstone_is_not_this_functions_to_judge() -> None:
    tombstone = Record("answers", 0, 0, 0, b"key", None)
    with pytest.raises(ValueError, match="tombstone"):
        decode_answer(tombstone, limits=Limits(), now=NOW)


def test_an_event_above_the_size_limit_is_too_large_before_it_is_parsed() -> None:
    at_limit = record(event())
    limit_bytes = at_limit.size_bytes
    decode(at_limit.value, limits=Limits(event_bytes_max=limit_bytes))
    error = refusal(at_limit.value, limits=Limits(event_bytes_max=limit_bytes - 1))
    assert error.reason is DeadLetterReason.TOO_LARGE
    assert str(limit_bytes) in error.detail
    assert refusal(b"[" * 1_000, limits=Limits(event_bytes_max=999)).reason is DeadLetterReason.TOO_LARGE


def test_headers_count_towards_the_size_of_an_event() -> None:
    padding = (("padding", bytes(2_000)),)
    assert refusal(event(), padding, Limits(event_bytes_max=2_000)).reason is DeadLetterReason.TOO_LARGE


def test_more_sources_than_the_setting_allows_are_named() -> None:
    sources = [{"source_id": f"s{i}", "text": "Text."} for i in range(3)]
    decode(event(sources=sources), limits=Limits(sources_max=3))
    error = refusal(event(sources=sources), limits=Limits(sources_max=2))
    assert error.reason is DeadLetterReason.INVALID_EVENT
    assert "sources" in error.detail


@pytest.mark.parametrize(
    ("occurred_at", "valid"),
    [
        ("1999-12-31T23:59:59.999999Z", False),
        ("2000-01-01T00:00:00Z", True),
        ("1999-12-31T23:30:00-01:00", True),
        ("2000-01-01T00:30:00+01:00", False),
        ((NOW + timedelta(days=1)).isoformat(), True),
        ((NOW + timedelta(days=1, microseconds=1)).isoformat(), False),
        # Zones that carry a moment over the edge of what a datetime can hold.
        ("0001-01-01T00:00:00+23:59", False),
        ("9999-12-31T23:59:59-23:59", False),
        ("2026-02-30T00:00:00Z", False),
        ("2026-05-31T24:00:00Z", False),
        ("2026-05-31T09:30:60Z", False),
        ("2026-05-31 09:30:00Z", False),
        ("2026-05-31T09:30:00Z\n", False),
        ("٢٠٢٦-05-31T09:30:00Z", False),
    ],
)
def test_producer_time_is_taken_only_from_2000_to_a_day_ahead_karafka_3250(occurred_at: str, *, valid: bool) -> None:
    if valid:
        assert decode(event(occurred_at=occurred_at)).answer.occurred_at == datetime.fromisoformat(occurred_at)
    else:
        error = refusal(event(occurred_at=occurred_at))
        assert (error.reason, error.detail.partition(":")[0]) == (DeadLetterReason.INVALID_EVENT, "occurred_at")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((("traceparent", TRACEPARENT.encode()),), TRACEPARENT),
        ((*BINARY, ("ce_traceparent", TRACEPARENT.encode())), TRACEPARENT),
        ((*BINARY, ("ce_traceparent", OTHER_TRACEPARENT.encode()), ("traceparent", TRACEPARENT.encode())), TRACEPARENT),
        ((("traceparent", b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01"),), None),
        ((("traceparent", b"\xff\xfe"),), None),
        ((("traceparent", TRACEPARENT.encode() + b"\n"),), None),
        ((), None),
    ],
)
def test_a_trace_is_taken_up_where_it_is_well_formed(headers: Headers, expected: str | None) -> None:
    assert decode(event(), headers).answer.traceparent == expected


@pytest.mark.parametrize(("traceparent", "expected"), [(TRACEPARENT, TRACEPARENT), (7, None), ("junk", None)])
def test_a_trace_in_the_envelope_is_taken_up_where_it_is_well_formed(traceparent: object, expected: str | None) -> None:
    envelope = {"specversion": "1.0", "type": TYPE, "id": "1", "source": "/s", "traceparent": traceparent}
    assert decode({**envelope, "data": event()}).answer.traceparent == expected


def test_an_attribute_header_given_twice_is_ambiguous() -> None:
    error = refusal(event(), (*BINARY, ("CE_TYPE", b"com.example.other.v1")))
    assert error.reason is DeadLetterReason.INVALID_EVENT
    assert "ce_type" in error.detail


def test_a_header_that_is_not_utf8_is_named() -> None:
    assert "ce_type" in refusal(event(), (("ce_type", b"\xff"), *BINARY[2:])).detail


def test_a_bare_event_that_merely_speaks_of_specversion_is_bare() -> None:
    assert decode(event(labels={"specversion": "1.0"})).answer.labels == {"specversion": "1.0"}
    assert decode(event(query='what is "specversion"?')).answer.query == 'what is "specversion"?'


CONTENT_CHANGES = {
    "query": "How high?",
    "answer": "4,807 metres.",
    "sources": [{"source_id": "s1", "text": "It is 4,807 m high."}],
    "reward": {"amount": "1.00", "currency": "EUR"},
}


@pytest.mark.parametrize("field", CONTENT_CHANGES)
def test_another_query_answer_source_or_reward_is_other_content(field: str) -> None:
    changed = decode(event(**{field: CONTENT_CHANGES[field]})).answer
    assert changed.content_hash != decode(event()).answer.content_hash


@pytest.mark.parametrize("field", ["source_id", "text", "owner_id", "url", "title", "license_ref"])
def test_every_field_of_a_source_is_content(field: str) -> None:
    source = {"source_id": "s1", "text": "Text."}
    changed = decode(event(sources=[{**source, field: "other"}])).answer
    assert changed.content_hash != decode(event(sources=[source])).answer.content_hash


def test_the_order_of_sources_is_content_because_ties_are_broken_by_it() -> None:
    sources = [{"source_id": "s1", "text": "One."}, {"source_id": "s2", "text": "Two."}]
    assert (
        decode(event(sources=sources)).answer.content_hash != decode(event(sources=sources[::-1])).answer.content_hash
    )


def test_a_field_that_moves_to_its_neighbour_is_other_content() -> None:
    one = decode(event(sources=[{"source_id": "s1", "text": "Text.", "url": "x"}])).answer
    other = decode(event(sources=[{"source_id": "s1", "text": "Text.", "title": "x"}])).answer
    assert one.content_hash != other.content_hash


def test_the_same_content_in_another_envelope_zone_or_spelling_is_the_same_content() -> None:
    plain = event(reward={"amount": "100", "currency": "EUR"})
    respelled = event(reward={"amount": "100.00", "currency": "EUR"}, occurred_at="2026-05-31T11:30:00+02:00", rank=7)
    envelope = {"specversion": "1.0", "type": TYPE, "id": "1", "source": "/s", "data": respelled}
    raw = json.dumps(envelope, indent=2, ensure_ascii=False).encode()
    assert decode(raw).answer.content_hash == decode(plain).answer.content_hash


def test_a_large_reward_keeps_every_digit() -> None:
    reward = decode(event(reward={"amount": "999999999999.999999", "currency": "EUR"})).answer.reward
    assert reward is not None
    assert reward.amount == Decimal("999999999999.999999")


SENTINEL = "Zyzzyva"


@pytest.mark.parametrize(
    "broken",
    [
        event(answer=[SENTINEL]),
        event(schema_version=SENTINEL),
        event(answer_id=SENTINEL + NUL),
        event(occurred_at=SENTINEL),
        event(occurred_at=f"2026-{SENTINEL}"),
        event(sources=[{"source_id": SENTINEL, "text": 1}, {"source_id": SENTINEL, "text": " "}]),
        event(sources=[{"source_id": SENTINEL, "text": SENTINEL}] * 2),
        event(reward={"amount": SENTINEL, "currency": SENTINEL}),
        event(labels={SENTINEL: 1}),
        event(labels={SENTINEL + NUL: "x"}),
        event(labels={SENTINEL: SENTINEL * 500}),
        event(search_llm=SENTINEL),
        {"specversion": "1.0", "type": SENTINEL, "id": "1", "source": "/s", "data": event()},
        {"specversion": SENTINEL, "type": TYPE, "id": "1", "source": "/s", "data": event()},
        {"specversion": "1.0", "type": TYPE, "id": "1", "source": "/s", "data_base64": SENTINEL + "!"},
        b'{"Zyzzyva": 1, "Zyzzyva": 2, ' + json.dumps(event()).encode()[1:],
        b'{"Zyzzyva": Zyzzyva}',
        b'"Zyzzyva',
        SENTINEL,
    ],
)
def test_a_refusal_never_quotes_the_payload(broken: Any) -> None:
    error = refusal(broken)
    assert SENTINEL not in str(error)
    assert SENTINEL.lower() not in str(error).lower()


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.integers(0, 6))
def test_nul_is_replaced_in_texts_and_nothing_else_is_kodus_1683(text: str, backslashes: int) -> None:
    written = "\\" * backslashes + text
    decoded = decode(event(answer=written, query="x\0y", sources=[{"source_id": "s", "text": "t\0", "title": written}]))
    expected = written.replace(NUL, "\N{REPLACEMENT CHARACTER}")
    assert decoded.answer.text == expected
    assert decoded.answer.sources[0].title == expected
    assert decoded.answer.query == "x\N{REPLACEMENT CHARACTER}y"
    assert decoded.scrubbed_count == 2 + 2 * written.count(NUL)


@pytest.mark.parametrize("backslashes", range(5))
def test_the_words_of_an_escape_are_not_the_escape(backslashes: int) -> None:
    text = "\\" * backslashes + "u0000"
    decoded = decode(event(answer=text))
    assert (decoded.answer.text, decoded.scrubbed_count) == (text, 0)


def test_many_problems_are_listed_up_to_a_limit() -> None:
    detail = refusal(event(sources=[{"source_id": f"s{i}", "text": ""} for i in range(400)])).detail
    assert "sources[0].text" in detail
    assert "395 more" in detail
    assert len(detail) < 500


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (event(tenant="eu", sources=None), AnswerKey(TenantId("eu"), AnswerId("a-1"))),
        (event(schema_version=2), AnswerKey(TenantId("default"), AnswerId("a-1"))),
        ({"specversion": "1.0", "data": event(query=1)}, AnswerKey(TenantId("default"), AnswerId("a-1"))),
        (event(answer_id=""), None),
        (event(answer_id=7), None),
        (b"\xff", None),
        (b"[" * 100_000, None),
    ],
)
def test_an_invalid_event_can_still_be_found_by_its_key_where_that_is_readable(
    value: Any, expected: AnswerKey | None
) -> None:
    assert read_answer_key(record(value)) == expected


@pytest.mark.parametrize("name", ["content-type", "ce_type", "traceparent", "trace", "dlq_replay"])
def test_a_header_without_a_value_says_nothing(name: str) -> None:
    """Kafka knows such headers; one stopped the worker for ever, at the first look at a record's size."""
    assert decode(event(), ((name, None),)).answer == decode(event()).answer
