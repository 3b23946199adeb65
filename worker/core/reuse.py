"""When two answers have the same judgement: everything that a judge looks at is the same."""

from collections.abc import Iterator
from hashlib import sha256

from worker.core.model import Answer

_SCHEME = b"judged.v1"
_LENGTH_BYTES = 8


def reuse_hash(answer: Answer, method_hash: bytes) -> bytes:
    """SHA-256 over what decides the judgement of this answer: query, text, sources in order (title and text), method.

    Not over what only decides credit and money (ids and owners of the sources, reward): these are computed anew from
    the copied matrix. Each value is hashed as its length, 8 bytes big-endian, and its UTF-8; an absent title counts as
    an empty one, as it is shown to a judge.
    """
    digest = sha256()
    for value in _decisive(answer, method_hash):
        digest.update(len(value).to_bytes(_LENGTH_BYTES, "big"))
        digest.update(value)
    return digest.digest()


def is_judged(answer: Answer) -> bool:
    """An answer without sources or text has nothing to judge, and so nothing to copy."""
    return bool(answer.sources) and bool(answer.text.strip())


def _decisive(answer: Answer, method_hash: bytes) -> Iterator[bytes]:
    yield _SCHEME
    yield method_hash
    yield _bytes(answer.query)
    yield _bytes(answer.text)
    for source in answer.sources:
        yield _bytes(source.title or "")
        yield _bytes(source.text)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
