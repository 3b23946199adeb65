"""Limits per minute as token buckets, enforced by each provider's own rule.

On purpose no code of the worker's limiter: what is measured against itself is not measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final, assert_never

from worker.embedded.llm_emulator.nouns import Api

SECOND_NS: Final = 10**9
MINUTE_NS: Final = 60 * SECOND_NS


class Limited(StrEnum):
    """What a limit counts."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Per minute and model; None is no limit. OpenAI limits `tokens`, Anthropic `input_tokens` and `output_tokens`.

    `burst_s`: for how many seconds an idle account saves up; it starts with all of that.
    """

    requests: int | None = None
    tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    burst_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A call that does not fit, and when it would; `wait_s` None: never."""

    limited: Limited
    limit: int
    remaining: int
    requested: int
    wait_s: float | None


@dataclass(frozen=True, slots=True)
class BucketState:
    """A limit as a client may be told of it; `reset_s` until the bucket is full again."""

    limit: int
    remaining: int
    reset_s: float
    charged: int


class Bucket:
    """Exact in integers: a limit of L refills L units a nanosecond, a token is `MINUTE_NS` units."""

    def __init__(self, limit: int, burst_s: float, now_ns: int) -> None:
        self.limit = limit
        self.charged = 0
        self._capacity = limit * round(burst_s * SECOND_NS)
        self._level = self._capacity
        self._at_ns = now_ns

    def remaining(self, now_ns: int) -> int:
        """Negative while output that was produced is still being paid back."""
        self._refill(now_ns)
        return self._level // MINUTE_NS

    def wait_s(self, tokens: int, now_ns: int) -> float | None:
        """Until they are there; None when the bucket never holds as many."""
        self._refill(now_ns)
        if tokens * MINUTE_NS > self._capacity:
            return None
        return max(0, tokens * MINUTE_NS - self._level) / self.limit / SECOND_NS

    def take(self, tokens: int, now_ns: int) -> None:
        self._refill(now_ns)
        self._level -= tokens * MINUTE_NS
        self.charged += tokens

    def state(self, now_ns: int) -> BucketState:
        remaining = max(0, self.remaining(now_ns))
        return BucketState(self.limit, remaining, (self._capacity - self._level) / self.limit / SECOND_NS, self.charged)

    def _refill(self, now_ns: int) -> None:
        # A bucket may be younger than the moment that its first request came.
        elapsed_ns = max(0, now_ns - self._at_ns)
        self._level = min(self._capacity, self._level + self.limit * elapsed_ns)
        self._at_ns += elapsed_ns


class Account:
    """All limits of one API and model."""

    def __init__(self, api: Api, limits: RateLimits, now_ns: int) -> None:
        self._api = api
        named = {
            Limited(field.name): getattr(limits, field.name) for field in fields(limits) if field.name != "burst_s"
        }
        self._buckets = {
            limited: Bucket(limit, limits.burst_s, now_ns) for limited, limit in named.items() if limit is not None
        }

    def admit(self, *, input_tokens: int, cached_tokens: int, output_tokens_max: int, now_ns: int) -> Exceeded | None:
        """Charge what is charged when a request arrives: all of it, or, when something does not fit, nothing.

        OpenAI counts input and output cap, whatever comes of it; Anthropic the input that was not cached, and lets
        nobody in while the output of earlier calls is not paid back.
        """
        match self._api:
            case Api.OPENAI:
                charges = {Limited.REQUESTS: 1, Limited.TOKENS: input_tokens + output_tokens_max}
            case Api.ANTHROPIC:
                charges = {Limited.REQUESTS: 1, Limited.INPUT_TOKENS: input_tokens - cached_tokens}
            case _:
                assert_never(self._api)
        needed = charges if self._api is Api.OPENAI else charges | {Limited.OUTPUT_TOKENS: 1}
        for limited, bucket in self._buckets.items():
            wait_s = bucket.wait_s(needed.get(limited, 0), now_ns)
            if wait_s != 0:
                self._count_refusal(now_ns)
                return Exceeded(limited, bucket.limit, max(0, bucket.remaining(now_ns)), needed[limited], wait_s)
        for limited, tokens in charges.items():
            if bucket_charged := self._buckets.get(limited):
                bucket_charged.take(tokens, now_ns)
        return None

    def produced(self, output_tokens: int, now_ns: int) -> None:
        """Anthropic charges output that really came, and may so be drawn into debt."""
        bucket = self._buckets.get(Limited.OUTPUT_TOKENS)
        if bucket is not None and self._api is Api.ANTHROPIC:
            bucket.take(output_tokens, now_ns)

    def states(self, now_ns: int) -> Mapping[Limited, BucketState]:
        return {limited: bucket.state(now_ns) for limited, bucket in self._buckets.items()}

    def _count_refusal(self, now_ns: int) -> None:
        """With OpenAI an unsuccessful request uses up a request like any other."""
        bucket = self._buckets.get(Limited.REQUESTS)
        if bucket is not None and self._api is Api.OPENAI and bucket.remaining(now_ns) > 0:
            bucket.take(1, now_ns)
