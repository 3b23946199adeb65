"""Records to decode."""

import json
from dataclasses import dataclass
from typing import Any

from tests.unit.schemas.examples import NOW
from worker.codec import Decoded, decode_answer
from worker.core.records import Headers, Record

TYPE = "attribution-worker.answer.generated.v1"


@dataclass(frozen=True)
class Limits:
    event_bytes_max: int = 2**20
    sources_max: int = 500


def event(**changes: Any) -> dict[str, Any]:
    """A valid event, with some fields changed."""
    return {
        "schema_version": 1,
        "answer_id": "a-1",
        "occurred_at": "2026-05-31T09:30:00Z",
        "query": "How tall is Mont Blanc?",
        "answer": "4,806 metres.",
        "sources": [{"source_id": "s1", "text": "It is 4,806 m high."}],
        **changes,
    }


def record(value: Any, headers: Headers = ()) -> Record:
    """A record of these bytes, or of this as JSON."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Record("answers", 0, 7, 1_780_000_000_000, None, raw, headers)


def decode(value: Any, headers: Headers = (), limits: Limits = Limits()) -> Decoded:
    return decode_answer(record(value, headers), limits=limits, now=NOW)
