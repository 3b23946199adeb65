"""The prompt cache of a provider: prefixes of prompts that were processed before, for a while."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import assert_never

from worker.core.llm import CompletionUsage
from worker.embedded.llm_emulator.nouns import Api, Call
from worker.embedded.llm_emulator.tokens import TOKEN_BYTES, Tokenizer, token_count

PREFIX_TOKENS_MIN = 1_024
"""A shorter prefix is not cached, by either provider."""

OPENAI_BLOCK_TOKENS = 128
LIVES_S = 300.0
"""Since its last use."""

FRAMING_TOKENS = 8
"""What roles and separators add to the tokens of a prompt's texts."""

ENTRIES_MAX = 200_000


@dataclass(frozen=True, slots=True)
class Prefix:
    key: bytes
    tokens: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """A call's prompt, counted: every prefix that may be cached, shortest first."""

    tokens: int
    prefixes: tuple[Prefix, ...]


def prompt_of(call: Call, tokenizer: Tokenizer) -> Prompt:
    """OpenAI caches on its own, in blocks; Anthropic at the breakpoints it is given."""
    last = len(call.segments) - 1
    stretches = [
        tokenizer.packed(segment.text, is_shared=position < last) for position, segment in enumerate(call.segments)
    ]
    packed = b"".join(stretches)
    total = token_count(packed)
    match call.api:
        case Api.OPENAI:
            ends: Iterable[int] = range(PREFIX_TOKENS_MIN, total + 1, OPENAI_BLOCK_TOKENS)
        case Api.ANTHROPIC:
            is_end = [segment.is_breakpoint for segment in call.segments]
            ends = _breakpoints([token_count(stretch) for stretch in stretches], is_end)
        case _:
            assert_never(call.api)
    return Prompt(total + FRAMING_TOKENS, tuple(_prefixes(f"{call.api} {call.model}", packed, ends)))


def _breakpoints(tokens: Iterable[int], is_end: Iterable[bool]) -> Iterator[int]:
    for end, is_breakpoint in zip(accumulate(tokens), is_end, strict=True):
        if is_breakpoint and end >= PREFIX_TOKENS_MIN:
            yield end


def _prefixes(account: str, packed: bytes, ends: Iterable[int]) -> Iterator[Prefix]:
    digest = hashlib.blake2b(account.encode(), digest_size=16)
    start = 0
    for end in ends:
        digest.update(packed[start * TOKEN_BYTES : end * TOKEN_BYTES])
        start = end
        yield Prefix(digest.digest(), end)


class PrefixCache:
    """Remembers prefixes from when their first processing ends until `LIVES_S` after their last use."""

    def __init__(self) -> None:
        self._lives: dict[bytes, tuple[float, float]] = {}

    def read(self, prefixes: Sequence[Prefix], now_s: float) -> int:
        """Tokens of the longest prefix that is there."""
        for position in range(len(prefixes) - 1, -1, -1):
            available_s, expires_s = self._lives.get(prefixes[position].key, (0.0, 0.0))
            if available_s <= now_s < expires_s:
                self._use(prefixes[: position + 1], now_s, now_s)
                return prefixes[position].tokens
        return 0

    def write(self, prefixes: Sequence[Prefix], now_s: float, available_s: float) -> None:
        """Those that are not there will be from `available_s` on."""
        missing = [prefix for prefix in prefixes if not now_s < self._lives.get(prefix.key, (0.0, 0.0))[1]]
        self._use(missing, available_s, available_s)

    def _use(self, prefixes: Iterable[Prefix], available_s: float, used_s: float) -> None:
        for prefix in prefixes:
            self._lives.pop(prefix.key, None)
            self._lives[prefix.key] = available_s, used_s + LIVES_S
        while len(self._lives) > ENTRIES_MAX:
            del self._lives[next(iter(self._lives))]


def usage_of(
    call: Call, prompt: Prompt, cached_tokens: int, output_tokens: int, reasoning_tokens: int
) -> CompletionUsage:
    """What the call used: writing to the cache is a bucket of its own with Anthropic, and free with OpenAI."""
    written = 0
    if call.api is Api.ANTHROPIC and prompt.prefixes:
        written = prompt.prefixes[-1].tokens - cached_tokens
    return CompletionUsage(
        input_tokens=prompt.tokens - cached_tokens - written,
        output_tokens=output_tokens,
        cache_read_tokens=cached_tokens,
        cache_write_tokens=written,
        reasoning_tokens=reasoning_tokens,
    )
