"""Tokens of o200k, counted offline: the emulator's one tokenizer, whoever is emulated."""

from functools import cache, lru_cache
from itertools import chain

import bpe_openai

PIECE_CHARACTERS = 200_000
"""The tokenizer refuses much longer texts; a cut costs at most one token."""


@cache
def _encoding() -> bpe_openai.Encoding:
    return bpe_openai.get_encoding("o200k_base")


def load_tokenizer() -> None:
    """The first use takes a second or two; better before the first request than during it."""
    _encoding()


def token_ids(text: str) -> list[int]:
    if len(text) <= PIECE_CHARACTERS:
        ids: list[int] = _encoding().encode_ordinary(text)
        return ids
    pieces = (text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS))
    return list(chain.from_iterable(_encoding().encode_ordinary(piece) for piece in pieces))


@lru_cache(maxsize=64)
def static_token_ids(text: str) -> tuple[int, ...]:
    """For texts that many requests share: instructions and schemas."""
    return tuple(token_ids(text))


def first_tokens(text: str, count: int) -> str:
    """As much of the text as `count` tokens hold."""
    shown: str = _encoding().decode(token_ids(text)[:count])
    return shown
