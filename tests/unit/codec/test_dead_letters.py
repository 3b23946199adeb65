from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.dead_letter import DETAIL_CHARACTERS_MAX, DeadLetterReason
from worker.codec import decode_dead_letter, encode_dead_letter
from worker.codec.dead_letters import KEPT_BYTES_MAX
from worker.core.records import OutboundMessage, Record

COPY_BYTES_MAX = 100_000
records = st.builds(
    Record,
    topic=st.just("answers"),
    partition=st.integers(0, 11),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(-1, 2**62),
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(st.tuples(st.text(max_size=8) | st.just("dlq_reason"), st.binary(max_size=20) | st.none())).map(
        tuple
    ),
)


def encode(record: Record, detail: str = "answer_id: Field required", attempts: int = 1) -> OutboundMessage:
    return encode_dead_letter(
        record,
        reason=DeadLetterReason.INVALID_EVENT,
        detail=detail,
        attempts=attempts,
        topic="answers.dead-letter",
        copy_bytes_max=COPY_BYTES_MAX,
        code_version="0.1.0",
    )


def large(*, key: bytes | None = b"key", value: bytes | None = b"", header: bytes = b"") -> Record:
    return Record("answers", 0, 7, 0, key, value, (("first", b"1"), ("second", header), ("third", b"3")))


@given(records, st.text(st.characters(exclude_categories=["Cs"]), max_size=50), st.integers(0, 9))
def test_a_dead_letter_gives_back_the_record_as_it_was(record: Record, detail: str, attempts: int) -> None:
    message = encode(record, detail, attempts)
    assert message.topic == "answers.dead-letter"
    assert (message.key, message.value) == (record.key, record.value)
    assert message.headers[: len(record.headers)] == record.headers
    decoded = decode_dead_letter(message)
    assert decoded.record == record
    assert decoded.headers.reason is DeadLetterReason.INVALID_EVENT
    assert (decoded.headers.detail, decoded.headers.attempts) == (detail, attempts)
    assert decoded.headers.code_version == "0.1.0"
    assert not decoded.headers.truncated


@given(records)
def test_a_dead_letter_that_was_replayed_and_died_again_still_unwinds(record: Record) -> None:
    first = encode(record)
    again = Record("answers", 0, 1, 0, first.key, first.value, first.headers)
    second = decode_dead_letter(encode(again))
    assert second.record == again
    assert decode_dead_letter(second.record).record == record


def test_a_record_at_the_limit_is_copied_whole_and_one_above_keeps_its_beginning() -> None:
    room = COPY_BYTES_MAX - large().size_bytes
    at_limit = large(value=bytes(room))
    assert decode_dead_letter(encode(at_limit)).record == at_limit
    above = large(value=bytes(range(256)) * (room // 256 + 1))
    assert above.value is not None
    decoded = decode_dead_letter(encode(above))
    assert decoded.record.value == above.value[:KEPT_BYTES_MAX]
    assert decoded.record.key == above.key
    assert decoded.record.headers == above.headers
    assert decoded.headers.truncated
    assert decoded.headers.original_size_bytes == len(above.value)
    assert decoded.headers.original_sha256 == sha256(above.value).hexdigest()


@pytest.mark.parametrize(
    "record",
    [
        large(value=bytes(4 * 2**20)),
        large(key=bytes(4 * 2**20)),
        large(header=bytes(4 * 2**20)),
        large(key=None, value=None, header=bytes(4 * 2**20)),
        large(key=bytes(2**20), value=bytes(2**20), header=bytes(2**20)),
    ],
    ids=["value", "key", "header", "tombstone", "everything"],
)
def test_a_dead_letter_fits_its_topic_wherever_the_bytes_were_logstash_285(record: Record) -> None:
    message = encode(record)
    size_bytes = Record("answers.dead-letter", 0, 0, 0, message.key, message.value, message.headers).size_bytes
    assert size_bytes < 4 * KEPT_BYTES_MAX
    decoded = decode_dead_letter(message)
    assert decoded.headers.truncated
    assert (decoded.record.key is None) == (record.key is None)
    assert (decoded.record.value is None) == (record.value is None)


def test_a_long_explanation_is_cut() -> None:
    said = decode_dead_letter(encode(large(), detail="x" * 10_000)).headers.detail
    assert len(said) == DETAIL_CHARACTERS_MAX
    assert said.endswith("…")


def test_an_ordinary_record_is_no_dead_letter() -> None:
    with pytest.raises(ValueError, match="not a dead letter"):
        decode_dead_letter(large())
