"""What names an answer's content and its announcements: the same bytes in, the same name out, on every machine."""

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final
from uuid import UUID, uuid5

from worker.core.model import AnswerKey, Reward, Source

EVENT_NAMESPACE: Final = UUID("5d0f3c1e-8a44-5b0e-9a6f-0c1f5c0f7d21")
"""Of every `AttributionComputed` id; changing it would make consumers see every event anew."""

_HASH_VERSION: Final = "answer.v1"


def content_hash(query: str, text: str, sources: Sequence[Source], reward: Reward | None) -> bytes:
    """SHA-256 over everything that decides credit or money.

    The hashed bytes are netstrings (`<bytes of the UTF-8>:<UTF-8>,`; `-,` for an absent value) of, in order: the
    scheme's name, query, answer, number of sources; per source its id, text, owner, url, title, licence; then the
    reward's amount, without trailing zeros, and its currency.
    """
    return sha256(b"".join(map(_netstring, _hashed_values(query, text, sources, reward)))).digest()


def event_id(key: AnswerKey, revision: int) -> UUID:
    """UUIDv5 over the JSON array of tenant, answer id and revision: republishing repeats it, so consumers dedupe."""
    return uuid5(EVENT_NAMESPACE, _json_array(key.tenant, key.answer_id, revision))


def message_key(key: AnswerKey) -> bytes:
    """The JSON array of tenant and answer id in ASCII: all revisions of an answer keep their order in one partition."""
    return _json_array(key.tenant, key.answer_id).encode()


def _hashed_values(query: str, text: str, sources: Sequence[Source], reward: Reward | None) -> Iterable[str | None]:
    yield _HASH_VERSION
    yield query
    yield text
    yield str(len(sources))
    for source in sources:
        yield source.source_id
        yield source.text
        yield source.owner_id
        yield source.url
        yield source.title
        yield source.license_ref
    yield format(reward.amount.normalize(), "f") if reward else None
    yield reward.currency if reward else None


def _netstring(value: str | None) -> bytes:
    if value is None:
        return b"-,"
    encoded = value.encode()
    return b"%d:%b," % (len(encoded), encoded)


def _json_array(*items: str | int) -> str:
    return json.dumps(items, separators=(",", ":"))
