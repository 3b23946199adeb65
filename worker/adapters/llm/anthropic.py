"""Anthropic's messages."""

from collections.abc import Callable
from typing import Any

import anthropic

from worker.adapters.llm.bodies import (
    JsonObject,
    UnreadableBodyError,
    estimated_completion,
    json_object,
    member,
    objects,
    request_id_of,
    token_count,
)
from worker.adapters.llm.http import LearningProfile, failed_connection, failed_status, timeouts
from worker.adapters.llm.profiles import Capability, anthropic_profile
from worker.adapters.llm.words import with_schema_in_words
from worker.core.llm import Completion, CompletionRequest, CompletionUsage, Finish
from worker.llm_ports import Reply

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

    def __init__(self, client: anthropic.AsyncAnthropic, *, model: str, count_tokens: Callable[[str], int]) -> None:
        self._client = client
        self.model = model
        self._count_tokens = count_tokens
        self._profile = LearningProfile(anthropic_profile())

    async def complete(self, request: CompletionRequest, *, client_request_id: str, timeout_s: float) -> Reply:
        return await self._profile.call(lambda: self._send(request, client_request_id, timeout_s))

    async def _send(self, request: CompletionRequest, client_request_id: str, timeout_s: float) -> Reply:
        try:
            response = await self._client.messages.with_raw_response.create(
                **self._body(request),
                timeout=timeouts(timeout_s),
                extra_headers={"X-Client-Request-Id": client_request_id},
            )
        except anthropic.APIStatusError as error:
            raise failed_status(error.response) from None
        except anthropic.APIConnectionError as error:
            raise failed_connection(error) from None
        return Reply(raw=response.http_response.text, headers=dict(response.headers))

    def _body(self, request: CompletionRequest) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "max_tokens": request.output_tokens_max}
        system = request.instructions
        if self._profile.current.has(Capability.STRUCTURED_OUTPUT):
            body["output_config"] = {"format": {"type": "json_schema", "schema": request.schema}}
        else:
            system = with_schema_in_words(request)
        body["system"] = [self._cached(system)]
        parts = [self._cached(request.context)] if request.context else []
        body["messages"] = [{"role": "user", "content": [*parts, {"type": "text", "text": request.question}]}]
        return body

    def _cached(self, text: str) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "text", "text": text}
        if self._profile.current.has(Capability.PROMPT_CACHING):
            block["cache_control"] = {"type": "ephemeral"}
        return block

    def read(self, raw: str, request: CompletionRequest) -> Completion:
        try:
            body = json_object(raw)
        except UnreadableBodyError:
            return estimated_completion(Finish.UNKNOWN, None, raw, request, self._count_tokens)
        texts = [block["text"] for block in objects(body, "content") if isinstance(block.get("text"), str)]
        text = "".join(str(part) for part in texts) if texts else None
        finish = FINISHES.get(str(body.get("stop_reason")), Finish.UNKNOWN)
        if finish is Finish.COMPLETE and text is None:
            finish = Finish.UNKNOWN
        usage = _usage(member(body, "usage"))
        if usage is None:
            return estimated_completion(finish, text, raw, request, self._count_tokens)
        return Completion(finish, text, usage, raw, request_id_of(body))


def _usage(usage: JsonObject) -> CompletionUsage | None:
    """Disjoint already but for reasoning, which Anthropic's output tokens include."""
    if "input_tokens" not in usage or "output_tokens" not in usage:
        return None
    output = token_count(usage, "output_tokens")
    reasoning = min(output, token_count(member(usage, "output_tokens_details"), "thinking_tokens"))
    return CompletionUsage(
        input_tokens=token_count(usage, "input_tokens"),
        cache_read_tokens=token_count(usage, "cache_read_input_tokens"),
        cache_write_tokens=token_count(usage, "cache_creation_input_tokens"),
        output_tokens=output - reasoning,
        reasoning_tokens=reasoning,
    )
