"""What names an answer's content and its announcements: the same bytes in, the same name out, on every machine."""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Final
from uuid import UUID, uuid5

from worker.core.model import AnswerKey, Reward, Source

EVENT_NAMESPACE: Final = UUID("5d0f3c1e-8a44-5b0e-9a6f-0c1f5c0f7d21")
"""Of every `AttributionComputed` id; changing it would make consumers see every event anew."""

_HASH_SCHEME: Final = "answer.v1"
_NUL: Final = "\0"


def content_hash(query: str, text: str, sources: Sequence[Source], reward: Reward | None) -> bytes:
    """SHA-256 over everything that decides credit or money.

    Hashed is the UTF-8 of these values, joined by NUL (which no value of an event can hold): the scheme's name, query,
    answer, number of sources; per source its id, text, owner, url, title, licence; the reward's amount, without
    trailing zeros, and its currency. An absent value counts as an empty one.

    Raises:
        ValueError: a value holds NUL.
    """
    values: list[str | None] = [_HASH_SCHEME, query, text, str(len(sources))]
    for source in sources:
        values += (source.source_id, source.text, source.owner_id, source.url, source.title, source.license_ref)
    values += (format(reward.amount.normalize(), "f"), reward.currency) if reward else (None, None)
    joined = _NUL.join([value or "" for value in values])
    if joined.count(_NUL) != len(values) - 1:
        raise ValueError("a value that holds NUL cannot be hashed: two contents would share one hash")
    return sha256(joined.encode()).digest()


def event_id(key: AnswerKey, revision: int) -> UUID:
    """UUIDv5 over the JSON array of tenant, answer id and revision: republishing repeats it, so consumers dedupe."""
    return uuid5(EVENT_NAMESPACE, _json_array(key.tenant, key.answer_id, revision))


def message_key(key: AnswerKey) -> bytes:
    """The JSON array of tenant and answer id in ASCII: all revisions of an answer keep their order in one partition."""
    return _json_array(key.tenant, key.answer_id).encode()


def _json_array(*items: str | int) -> str:
    return json.dumps(items, separators=(",", ":"))
