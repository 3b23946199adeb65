"""What a request is before it is sent: its identity and its size in tokens."""

import hashlib
import json
import math
from collections.abc import Callable
from functools import lru_cache

from worker.core.charging import Estimate
from worker.core.llm import CompletionRequest
from worker.llm_ports import Provider

FRAMING_TOKENS = 64
"""What a provider adds to a request's texts."""

SHARED_TEXTS = 64
"""Instructions and schemas never vary between answers: a few of each stage."""


class Sizing:
    """Estimates of calls; `token_margin` is for providers that count more tokens than we do."""

    def __init__(self, count_tokens: Callable[[str], int], token_margin: float) -> None:
        self._count_tokens = count_tokens
        self._count_shared = lru_cache(SHARED_TEXTS)(count_tokens)
        self._token_margin = token_margin

    def estimate(self, request: CompletionRequest) -> Estimate:
        shared = (request.instructions, json.dumps(request.schema))
        own = (request.context, request.question)
        counted = sum(map(self._count_shared, shared)) + sum(map(self._count_tokens, own)) + FRAMING_TOKENS
        return Estimate(math.ceil(counted * self._token_margin), request.output_tokens_max)


def call_key_of(provider: Provider, request_fingerprint: str) -> bytes:
    """SHA-256 over provider, model and the whole neutral request, by its fingerprint.

    The same at every redelivery, also after a parameter downgrade or an SDK's upgrade changed the body on the wire.
    """
    asked = f"{provider.name}\n{provider.model}\n{request_fingerprint}"
    return hashlib.sha256(asked.encode()).digest()
