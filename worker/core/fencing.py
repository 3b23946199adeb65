"""Untrusted text made safe to show to a model: scrubbed, JSON-encoded, fenced by a boundary no publisher can guess.

JSON leaves no line break in a text, so every line of a message is one we began: a text can neither open nor close a
block, whatever it holds. Order and boundary follow from the answer's key and a secret: the same answer is always shown
the same way, byte for byte.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from worker.core.model import Answer, AnswerKey, Source

SECRET_BYTES_MIN = 16
"""A shorter secret could be guessed, and with it every boundary."""

BOUNDARY_DIGITS = 18
"""About 60 bits; digits, because models read three of them as one token."""

REPLACEMENT = "\ufffd"

_UNSHOWABLE = re.compile("[\x00-\x08\x0e-\x1b\ud800-\udfff]")
# Python, JavaScript and models disagree on which of these end a line; as \n they are escaped by JSON like any other.
_LINE_ENDS = re.compile("[\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class Fence:
    """The boundary around one answer's untrusted text."""

    boundary: str

    def clean(self, text: str) -> tuple[str, int]:
        """The text as it may be shown, and how many characters or boundaries had to be replaced.

        Holds no NUL or other control character but tab and line ends, no lone surrogate, and not the boundary.
        """
        shown, unshowable = _UNSHOWABLE.subn(REPLACEMENT, _LINE_ENDS.sub("\n", text))
        # The replacement is no digit, so that what stood on both sides cannot grow together into a boundary again.
        boundaries = shown.count(self.boundary)
        return shown.replace(self.boundary, REPLACEMENT), unshowable + boundaries

    def block(self, lines: Iterable[str]) -> str:
        """Encoded lines between an opening and a closing line."""
        return "\n".join((f"<data {self.boundary}>", *lines, f"</data {self.boundary}>"))


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    """One answer as a model is shown it.

    `sources` are cleaned, in the event's order; `positions[index]` is where a source is shown, from 0.
    `scrubbed` counts what `Fence.clean` replaced.
    """

    query: str
    text: str
    sources: tuple[Source, ...]
    positions: tuple[int, ...]
    shuffle_seed: int
    fence: Fence
    scrubbed: int

    def source_id(self, index: int) -> str:
        """The id we issue for a source; it tells the position alone, and the publisher's own id is never shown."""
        return f"s{self.positions[index] + 1}"


def show(answer: Answer, secret: bytes) -> ShownAnswer:
    """The same for the same answer and secret, on every machine.

    Raises:
        ValueError: the secret is shorter than `SECRET_BYTES_MIN`.
    """
    fence = Fence(boundary_of(answer.key, secret))
    seed = shuffle_seed_of(answer.key, secret)
    query, in_query = fence.clean(answer.query)
    text, in_text = fence.clean(answer.text)
    sources = []
    scrubbed = in_query + in_text
    for source in answer.sources:
        title, in_title = fence.clean(source.title or "")
        body, in_body = fence.clean(source.text)
        sources.append(replace(source, title=title or None, text=body))
        scrubbed += in_title + in_body
    order = shuffled(len(sources), seed)
    positions = tuple(sorted(range(len(order)), key=order.__getitem__))
    return ShownAnswer(query, text, tuple(sources), positions, seed, fence, scrubbed)


def encoded(value: object) -> str:
    """JSON on one line, without spaces; letters of every script stay themselves, as escapes would cost tokens."""
    return _ENCODER.encode(value)


def boundary_of(key: AnswerKey, secret: bytes) -> str:
    """`BOUNDARY_DIGITS` decimal digits."""
    number = int.from_bytes(_digest("boundary", key, secret)[:8]) % 10**BOUNDARY_DIGITS
    return f"{number:0{BOUNDARY_DIGITS}d}"


def shuffle_seed_of(key: AnswerKey, secret: bytes) -> int:
    """63 bits: the first 8 bytes of HMAC-SHA256, big-endian, without the last bit."""
    return int.from_bytes(_digest("shuffle", key, secret)[:8]) >> 1


def shuffled(count: int, seed: int) -> tuple[int, ...]:
    """A permutation of range(count) that follows from the seed alone, the same in every language.

    Fisher and Yates from the last position down: position i changes places with position d mod (i + 1), where d is
    the first 8 bytes, big-endian, of HMAC-SHA256(key = seed as 8 bytes, message = i as 4 bytes, both big-endian).
    """
    order = list(range(count))
    key = seed.to_bytes(8)
    for i in range(count - 1, 0, -1):
        draw = int.from_bytes(hmac.digest(key, i.to_bytes(4), hashlib.sha256)[:8])
        j = draw % (i + 1)
        order[i], order[j] = order[j], order[i]
    return tuple(order)


def _digest(purpose: str, key: AnswerKey, secret: bytes) -> bytes:
    if len(secret) < SECRET_BYTES_MIN:
        raise ValueError(f"the secret must have at least {SECRET_BYTES_MIN} bytes, it has {len(secret)}")
    tenant = key.tenant.encode(errors="surrogatepass")
    answer_id = key.answer_id.encode(errors="surrogatepass")
    # The length tells ("a", "bc") from ("ab", "c").
    message = purpose.encode() + b"\0" + len(tenant).to_bytes(4) + tenant + answer_id
    return hmac.digest(secret, message, hashlib.sha256)
