"""Tokens counted offline by o200k: exact for current OpenAI models, an estimate for all others."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import bpe_openai

PIECE_CHARACTERS = 200_000
"""The tokenizer refuses much longer texts; a cut costs at most one token."""


@cache
def _encoding() -> "bpe_openai.Encoding":
    import bpe_openai  # noqa: PLC0415  # it takes a second, which a process that counts no tokens is not to wait for

    return bpe_openai.get_encoding("o200k_base")


def load_tokenizer() -> None:
    """Reads the vocabulary, which takes a second or two: not while others wait for the event loop."""
    _encoding()


def count_tokens(text: str) -> int:
    """Any text; half of a surrogate pair counts as the replacement character."""
    pieces = (text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS))
    return sum(len(_encoding().encode_ordinary(piece)) for piece in pieces)
