"""Anthropic's messages."""

from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
from pydantic import SecretStr

from worker.adapters.llm.bodies import (
    JsonObject,
    Said,
    completion_in,
    member,
    objects,
    token_count,
)
from worker.adapters.llm.exchange import Exchange, SdkErrors
from worker.adapters.llm.http import timeouts
from worker.adapters.llm.profiles import Capability, CapabilityProfile, anthropic_profile
from worker.adapters.llm.shared_contexts import SharedContexts
from worker.adapters.llm.words import with_schema_in_words
from worker.core.llm import Completion, CompletionRequest, CompletionUsage, Finish
from worker.llm_ports import Reply

OFFICIAL_BASE_URL = "https://api.anthropic.com"
ERRORS = SdkErrors(status=anthropic.APIStatusError, connection=anthropic.APIConnectionError)
FINISHES = {
    "end_turn": Finish.COMPLETE,
    "stop_sequence": Finish.COMPLETE,
    "max_tokens": Finish.TRUNCATED,
    "model_context_window_exceeded": Finish.TRUNCATED,
    "refusal": Finish.REFUSED,
}


class AnthropicProvider:
    """One model through one client; learns once what the model refuses to take."""

    name = "anthropic"

    def __init__(
        self,
        http_client: httpx2.AsyncClient,
        *,
        model: str,
        api_key: SecretStr,
        base_url: str | None,
        count_tokens: Callable[[str], int],
    ) -> None:
        self.model = model
        self._client = _client(http_client, api_key, base_url or OFFICIAL_BASE_URL)
        self._count_tokens = count_tokens
        self._contexts = SharedContexts()
        self._exchange = Exchange(
            anthropic_profile(),
            model=model,
            api_key=api_key,
            errors=ERRORS,
            completion_members=frozenset({"content", "stop_reason"}),
        )

    async def complete(self, request: CompletionRequest, *, client_request_id: str, timeout_s: float) -> Reply:
        is_shared = self._contexts.came_before(request.context)

        async def send(profile: CapabilityProfile) -> httpx2.Response:
            # Not by the SDK's method for it, which walks through body and types.
            return await self._client.post(
                "/v1/messages",
                body=self._body(request, profile, caches_context=is_shared),
                cast_to=httpx2.Response,
                options={"timeout": timeouts(timeout_s), "headers": {"X-Client-Request-Id": client_request_id}},
            )

        return await self._exchange.complete(send, timeout_s)

    def _body(self, request: CompletionRequest, profile: CapabilityProfile, *, caches_context: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "max_tokens": request.output_tokens_max}
        system = request.instructions
        if profile.has(Capability.STRUCTURED_OUTPUT):
            body["output_config"] = {"format": {"type": "json_schema", "schema": request.schema}}
        else:
            system = with_schema_in_words(request)
        caches = profile.has(Capability.PROMPT_CACHING)
        body["system"] = [_block(system, ends_prefix=caches)]
        # An empty block would be refused.
        context = [_block(request.context, ends_prefix=caches and caches_context)] if request.context else []
        body["messages"] = [{"role": "user", "content": [*context, _block(request.question)]}]
        return body

    def read(self, raw: str, request: CompletionRequest) -> Completion:
        return completion_in(raw, request, said_in=_said_in, count_tokens=self._count_tokens)


def _said_in(body: JsonObject) -> Said:
    texts = [block.get("text") for block in objects(body, "content") if block.get("type") == "text"]
    parts = [part for part in texts if isinstance(part, str)]
    text = "".join(parts) if parts else None
    finish = FINISHES.get(str(body.get("stop_reason")), Finish.UNKNOWN)
    if finish is Finish.COMPLETE and text is None:
        finish = Finish.UNKNOWN
    return Said(finish, text, _usage(member(body, "usage")))


def _client(http_client: httpx2.AsyncClient, api_key: SecretStr, base_url: str) -> anthropic.AsyncAnthropic:
    """The SDK's client with nothing but what it is given: it reads ANTHROPIC_… variables for all that is left out."""
    client = anthropic.AsyncAnthropic(
        api_key=api_key.get_secret_value(),
        base_url=base_url,
        http_client=http_client,
        max_retries=0,
        open_telemetry=False,
    )
    client.webhook_key = None
    client._custom_headers = {}  # noqa: SLF001  # ANTHROPIC_CUSTOM_HEADERS has no other way out
    return client


def _block(text: str, *, ends_prefix: bool = False) -> dict[str, Any]:
    """`ends_prefix`: everything up to here is worth keeping in the provider's cache."""
    cached = {"cache_control": {"type": "ephemeral"}} if ends_prefix else {}
    return {"type": "text", "text": text, **cached}


def _usage(usage: JsonObject) -> CompletionUsage | None:
    """Disjoint already but for reasoning, which Anthropic's output tokens include."""
    input_tokens, output = token_count(usage, "input_tokens"), token_count(usage, "output_tokens")
    if input_tokens is None or output is None:
        return None
    reasoning = min(output, token_count(member(usage, "output_tokens_details"), "thinking_tokens") or 0)
    return CompletionUsage(
        input_tokens=input_tokens,
        cache_read_tokens=token_count(usage, "cache_read_input_tokens") or 0,
        cache_write_tokens=token_count(usage, "cache_creation_input_tokens") or 0,
        output_tokens=output - reasoning,
        reasoning_tokens=reasoning,
    )
