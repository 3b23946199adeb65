"""An answer event out of its envelope: first whether this version can be read at all, then every value."""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from schemas.answer_generated import AnswerGenerated
from schemas.cloud_events import (
    ANSWER_GENERATED,
    ANSWER_GENERATED_TYPE,
    ATTRIBUTE_PREFIX,
    REQUIRED_ATTRIBUTES,
    SPECVERSION,
    AnswerGeneratedEnvelope,
)
from schemas.dead_letter import DeadLetterReason
from schemas.values import SCHEMA_VERSION
from worker.codec.content_modes import (
    ContentMode,
    content_mode,
    header_text,
    headers_by_name,
    json_media_type,
    top_level_members,
)
from worker.codec.problems import invalid_event, refusal
from worker.codec.strict_json import validate
from worker.core.records import Headers
from worker.errors import PermanentError

_TYPE_OF_ANY_VERSION: Final = re.compile(re.escape(ANSWER_GENERATED) + r"\.v[0-9]+")
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Opened:
    """A valid event, how many NUL characters were replaced in it, and the trace it belongs to."""

    event: AnswerGenerated
    scrubbed_count: int
    traceparent: str | None


def open_event(headers: Headers, value: bytes) -> Opened:
    """The event of one record, whichever way it was sent.

    Raises:
        PermanentError: not JSON, of another version, or invalid; the detail names the field.
    """
    by_name = headers_by_name(headers)
    match content_mode(by_name, value):
        case ContentMode.STRUCTURED:
            return _open_structured(by_name, value)
        case ContentMode.BINARY:
            attributes = {name: header_text(by_name, ATTRIBUTE_PREFIX + name) for name in REQUIRED_ATTRIBUTES}
            _require_supported_attributes(attributes, ATTRIBUTE_PREFIX)
            _require_all_attributes(attributes)
        case ContentMode.BARE:
            pass
    event, scrubbed_count = _parse_answer(value)
    return Opened(event, scrubbed_count, _traceparent(by_name))


def _open_structured(headers: Mapping[str, bytes], value: bytes) -> Opened:
    try:
        envelope, scrubbed_count = validate(AnswerGeneratedEnvelope, value)
    except ValidationError as error:
        members = top_level_members(value)
        _require_supported_attributes(members)
        _require_supported_schema(members.get("data"))
        raise refusal(error, value) from None
    _require_supported_attributes({"specversion": envelope.specversion, "type": envelope.type})
    json_media_type("datacontenttype", envelope.datacontenttype)
    event = envelope.data
    if envelope.data_base64 is not None:
        if event is not None:
            raise invalid_event("data_base64", "data and data_base64 exclude each other")
        event, scrubbed_count = _parse_answer(_from_base64(envelope.data_base64))
    if event is None:
        raise invalid_event("data", "Field required")
    return Opened(event, scrubbed_count, _traceparent(headers, envelope.traceparent))


def _parse_answer(json_text: bytes) -> tuple[AnswerGenerated, int]:
    try:
        return validate(AnswerGenerated, json_text)
    except ValidationError as error:
        _require_supported_schema(top_level_members(json_text))
        raise refusal(error, json_text) from None


def _require_supported_attributes(attributes: Mapping[str, Any], prefix: str = "") -> None:
    specversion, event_type = attributes.get("specversion"), attributes.get("type")
    if isinstance(specversion, str) and specversion and specversion != SPECVERSION:
        raise _unsupported(f"{prefix}specversion", f"only CloudEvents {SPECVERSION} is supported")
    if not isinstance(event_type, str) or not event_type or event_type == ANSWER_GENERATED_TYPE:
        return
    if _TYPE_OF_ANY_VERSION.fullmatch(event_type):
        raise _unsupported(f"{prefix}type", f"only {ANSWER_GENERATED_TYPE} is supported")
    raise invalid_event(f"{prefix}type", f"must be {ANSWER_GENERATED_TYPE}")


def _require_all_attributes(attributes: Mapping[str, str | None]) -> None:
    for name, text in attributes.items():
        if not text:
            raise invalid_event(ATTRIBUTE_PREFIX + name, "the header is missing or empty")


def _require_supported_schema(data: object) -> None:
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and not isinstance(version, bool) and version != SCHEMA_VERSION:
        raise _unsupported("schema_version", f"only {SCHEMA_VERSION} is supported")


def _unsupported(path: str, problem: str) -> PermanentError:
    return PermanentError(DeadLetterReason.UNSUPPORTED_VERSION, f"{path}: {problem}")


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid_event("data_base64", "is not base64") from None


def _traceparent(headers: Mapping[str, bytes], attribute: object = None) -> str | None:
    """The record's own trace context before the event's; a malformed one is dropped, as W3C Trace Context asks."""
    header = headers.get("traceparent", headers.get("ce_traceparent"))
    candidate = header.decode("ascii", "replace") if header is not None else attribute
    return candidate if isinstance(candidate, str) and _TRACEPARENT.fullmatch(candidate) else None
