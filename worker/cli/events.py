"""Answer events from a file, each with its place, as the records Kafka would have delivered."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from worker.core.records import Record


@dataclass(frozen=True, slots=True)
class EventLine:
    """One event and where a person finds it."""

    place: str
    record: Record


def read_events(name: str, content: bytes) -> Iterator[EventLine]:
    """One document, or one event a line; blank lines are passed over.

    A file is one document when its first line alone is not whole JSON but the file is (pretty-printed JSON).
    """
    lines = content.splitlines()
    if len(lines) > 1 and not _is_json(lines[0]) and _is_json(content):
        yield _event(name, 1, content)
        return
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _event(name, number, line)


def _event(name: str, line_number: int, value: bytes) -> EventLine:
    record = Record(topic=name, partition=0, offset=line_number - 1, timestamp_ms=0, key=None, value=value)
    return EventLine(f"{name}:{line_number}", record)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
