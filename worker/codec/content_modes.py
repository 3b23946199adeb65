"""How an answer event arrived: CloudEvents 1.0 in structured or binary mode, or as bare JSON."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from pydantic_core import from_json

from schemas.cloud_events import ATTRIBUTE_PREFIX, STRUCTURED_CONTENT_TYPE
from worker.codec.problems import invalid_event
from worker.core.records import Headers

_JSON_MEDIA_TYPE = re.compile(r"(application|text)/([a-z0-9.-]+\+)?json", re.ASCII)
_UTF8_CHARSETS: Final = frozenset({"utf-8", "utf8", "us-ascii"})
_ANY_CLOUDEVENTS: Final = "application/cloudevents"


class ContentMode(StrEnum):
    """What the bytes of a value are."""

    STRUCTURED = "structured"
    BINARY = "binary"
    BARE = "bare"


def content_mode(headers: Mapping[str, bytes], value: bytes) -> ContentMode:
    """As the CloudEvents Kafka binding says; by the look of the value where no header says anything.

    Args:
        headers: by name in lower case.
        value: the record's.

    Raises:
        PermanentError: the content type is not JSON in UTF-8.
    """
    media_type = json_media_type("content-type", header_text(headers, "content-type"))
    if media_type == STRUCTURED_CONTENT_TYPE:
        return ContentMode.STRUCTURED
    if any(name.startswith(ATTRIBUTE_PREFIX) for name in headers):
        return ContentMode.BINARY
    # Inside a JSON string the quotes would be escaped: this look alone tells nearly every bare event apart.
    if b'"specversion"' in value and "specversion" in top_level_members(value):
        return ContentMode.STRUCTURED
    return ContentMode.BARE


def headers_by_name(headers: Headers) -> dict[str, bytes]:
    """Headers by lower-case name; one without a value says nothing.

    Raises:
        PermanentError: one that decides how the event is read is given twice.
    """
    by_name: dict[str, bytes] = {}
    for name, value in headers:
        lower = name.lower()
        if lower in by_name and (lower.startswith(ATTRIBUTE_PREFIX) or lower == "content-type"):
            # A name that the producer made up is payload.
            label = lower if lower.isascii() and lower.replace("-", "_").isidentifier() else "a ce_ header"
            raise invalid_event(label, "the header is given twice")
        if value is not None:
            by_name[lower] = value
    return by_name


def header_text(headers: Mapping[str, bytes], name: str) -> str | None:
    """A header as text.

    Raises:
        PermanentError: it is not UTF-8.
    """
    value = headers.get(name)
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        raise invalid_event(name, "the header is not UTF-8") from None


def json_media_type(path: str, content_type: str | None) -> str | None:
    """The media type in lower case, without its parameters.

    Raises:
        PermanentError: it does not stand for one JSON document in UTF-8.
    """
    if not content_type:
        return None
    media_type, *parameters = (part.strip().lower() for part in content_type.split(";"))
    if not _JSON_MEDIA_TYPE.fullmatch(media_type):
        raise invalid_event(path, "must be a JSON media type, like application/json")
    if media_type.startswith(_ANY_CLOUDEVENTS) and media_type != STRUCTURED_CONTENT_TYPE:
        raise invalid_event(path, "a batch is not supported: send one event a record")
    charset = next((part.removeprefix("charset=").strip('"') for part in parameters if part.startswith("charset=")), "")
    if charset and charset not in _UTF8_CHARSETS:
        raise invalid_event(path, "the charset must be utf-8")
    return media_type


def top_level_members(value: bytes) -> Mapping[str, Any]:
    """The members of a JSON object; none if it is anything else."""
    try:
        parsed = from_json(value)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
