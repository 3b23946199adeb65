"""A record set aside ↔ its dead-letter message; the original bytes travel untouched and come back for a replay."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from schemas.dead_letter import DETAIL_CHARACTERS_MAX, DeadLetterHeaders, DeadLetterReason
from worker.core.records import Headers, OutboundMessage, Record

KEPT_BYTES_MAX: Final = 64 * 1024
"""What stays of the value, of the key, and of the headers of a record too large to copy."""


@dataclass(frozen=True, slots=True)
class DecodedDeadLetter:
    """The original record (a mere beginning of it when `headers.truncated`) and what was said of it."""

    record: Record
    headers: DeadLetterHeaders


def encode_dead_letter(
    record: Record,
    *,
    reason: DeadLetterReason,
    detail: str,
    attempts: int,
    topic: str,
    copy_bytes_max: int,
    code_version: str,
) -> OutboundMessage:
    """Original key, value and headers, and behind them ours; a record above `copy_bytes_max` keeps its beginning."""
    truncated = record.size_bytes > copy_bytes_max
    value = record.value or b""
    added = DeadLetterHeaders(
        reason=reason,
        detail=detail if len(detail) <= DETAIL_CHARACTERS_MAX else detail[: DETAIL_CHARACTERS_MAX - 1] + "…",
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp_ms,
        attempts=attempts,
        code_version=code_version,
        truncated=truncated,
        original_size_bytes=len(value) if truncated else None,
        original_sha256=sha256(value).hexdigest() if truncated else None,
    ).encode()
    if not truncated:
        return OutboundMessage(topic, record.key, record.value, record.headers + added)
    key, kept = (None if field is None else field[:KEPT_BYTES_MAX] for field in (record.key, record.value))
    return OutboundMessage(topic, key, kept, _kept_headers(record.headers) + added)


def decode_dead_letter(message: Record | OutboundMessage) -> DecodedDeadLetter:
    """The inverse of `encode_dead_letter`.

    Raises:
        ValueError: the message is no dead letter of ours.
    """
    own, added = DeadLetterHeaders.split(message.headers)
    record = Record(
        topic=added.topic,
        partition=added.partition,
        offset=added.offset,
        timestamp_ms=added.timestamp,
        key=message.key,
        value=message.value,
        headers=own,
    )
    return DecodedDeadLetter(record, added)


def _kept_headers(headers: Headers) -> Headers:
    """The first headers that fit; one alone may be as large as a record."""
    kept, left_bytes = [], KEPT_BYTES_MAX
    for name, value in headers:
        left_bytes -= len(name.encode()) + len(value or b"")
        if left_bytes < 0:
            break
        kept.append((name, value))
    return tuple(kept)
