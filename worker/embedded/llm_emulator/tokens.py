"""Texts as tokens, four bytes each: by o200k, or, where counting would be the bottleneck, by their length alone."""

from array import array
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import bpe_openai

TOKEN_BYTES: Final = 4
PIECE_CHARACTERS: Final = 200_000
"""The tokenizer refuses much longer texts; a cut costs at most one token."""


class Tokenizer(Protocol):
    """What a provider counts by."""

    def load(self) -> None:
        """Whatever takes long, before the first request."""
        ...

    def packed(self, text: str, *, is_shared: bool = False) -> bytes:
        """`TOKEN_BYTES` for each token; `is_shared` for texts that many requests have in common."""
        ...

    def first(self, text: str, count: int) -> str:
        """As much of the text as `count` tokens hold."""
        ...


def token_count(packed: bytes) -> int:
    return len(packed) // TOKEN_BYTES


@cache
def _encoding() -> "bpe_openai.Encoding":
    import bpe_openai  # noqa: PLC0415  # it takes a second, which a process that counts no tokens is not to wait for

    return bpe_openai.get_encoding("o200k_base")


def _ids(text: str) -> list[int]:
    ids: list[int] = []
    for start in range(0, len(text), PIECE_CHARACTERS):
        ids += _encoding().encode_ordinary(text[start : start + PIECE_CHARACTERS])
    return ids


def _packed(text: str) -> bytes:
    return array("I", _ids(text)).tobytes()


_packed_shared = lru_cache(maxsize=64)(_packed)


class O200k:
    """Exact, offline; about 0.1 ms for a thousand tokens."""

    def load(self) -> None:
        _encoding()

    def packed(self, text: str, *, is_shared: bool = False) -> bytes:
        return _packed_shared(text) if is_shared else _packed(text)

    def first(self, text: str, count: int) -> str:
        shown: str = _encoding().decode(_ids(text)[:count])
        return shown


class FourBytes:
    """A token is four bytes of UTF-8: about as many as o200k makes of English, at no cost."""

    def load(self) -> None:
        """Nothing takes long."""

    def packed(self, text: str, *, is_shared: bool = False) -> bytes:  # noqa: ARG002  # all are cheap
        encoded = text.encode("utf-8", "surrogatepass")
        return encoded + b" " * (-len(encoded) % TOKEN_BYTES)

    def first(self, text: str, count: int) -> str:
        return text.encode("utf-8", "surrogatepass")[: count * TOKEN_BYTES].decode("utf-8", "ignore")
