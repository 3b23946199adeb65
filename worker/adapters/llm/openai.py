"""OpenAI's chat completions, and whatever speaks the same at another base URL (vLLM, llama.cpp, Azure)."""

from collections.abc import Callable
from typing import Any

import openai

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
from worker.adapters.llm.profiles import Capability, openai_profile
from worker.adapters.llm.words import with_schema_in_words
from worker.core.llm import Completion, CompletionRequest, CompletionUsage, Finish
from worker.llm_ports import Reply

FINISHES = {
    "stop": Finish.COMPLETE,
    "length": Finish.TRUNCATED,
    "content_filter": Finish.REFUSED,
    "refusal": Finish.REFUSED,
}


class OpenAIProvider:
    """One model through one client; learns once what the model refuses to take."""

    name = "openai"

    def __init__(
        self, client: openai.AsyncOpenAI, *, model: str, count_tokens: Callable[[str], int], official: bool
    ) -> None:
        self._client = client
        self.model = model
        self._count_tokens = count_tokens
        self._profile = LearningProfile(openai_profile(model, official=official))

    async def complete(self, request: CompletionRequest, *, client_request_id: str, timeout_s: float) -> Reply:
        return await self._profile.call(lambda: self._send(request, client_request_id, timeout_s))

    async def _send(self, request: CompletionRequest, client_request_id: str, timeout_s: float) -> Reply:
        try:
            response = await self._client.chat.completions.with_raw_response.create(
                **self._body(request),
                timeout=timeouts(timeout_s),
                extra_headers={"X-Client-Request-Id": client_request_id},
            )
        except openai.APIStatusError as error:
            raise failed_status(error.response) from None
        except openai.APIConnectionError as error:
            raise failed_connection(error) from None
        return Reply(raw=response.http_response.text, headers=dict(response.headers))

    def _body(self, request: CompletionRequest) -> dict[str, Any]:
        system = request.instructions
        body: dict[str, Any] = {"model": self.model}
        if self._profile.current.has(Capability.STRUCTURED_OUTPUT):
            schema = {"name": request.schema_name, "strict": True, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        else:
            system = with_schema_in_words(request)
        user = "\n\n".join(part for part in (request.context, request.question) if part)
        body["messages"] = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        if self._profile.current.has(Capability.TEMPERATURE):
            body["temperature"] = 0
        cap = "max_completion_tokens" if self._profile.current.has(Capability.MAX_COMPLETION_TOKENS) else "max_tokens"
        body[cap] = request.output_tokens_max
        return body

    def read(self, raw: str, request: CompletionRequest) -> Completion:
        try:
            body = json_object(raw)
        except UnreadableBodyError:
            return estimated_completion(Finish.UNKNOWN, None, raw, request, self._count_tokens)
        choice = next(iter(objects(body, "choices")), {})
        message = member(choice, "message")
        content, refusal = message.get("content"), message.get("refusal")
        text = content if isinstance(content, str) else None
        finish = FINISHES.get(str(choice.get("finish_reason")), Finish.UNKNOWN)
        if isinstance(refusal, str) and refusal:
            finish = Finish.REFUSED
        elif finish is Finish.COMPLETE and text is None:
            finish = Finish.UNKNOWN
        usage = _usage(member(body, "usage"))
        if usage is None:
            return estimated_completion(finish, text, raw, request, self._count_tokens)
        return Completion(finish, text, usage, raw, request_id_of(body))


def _usage(usage: JsonObject) -> CompletionUsage | None:
    """Disjoint buckets: OpenAI's prompt tokens include cached ones, its completion tokens include reasoning."""
    if "prompt_tokens" not in usage or "completion_tokens" not in usage:
        return None
    prompt, completion = token_count(usage, "prompt_tokens"), token_count(usage, "completion_tokens")
    details = member(usage, "prompt_tokens_details")
    cached = min(prompt, token_count(details, "cached_tokens"))
    written = min(prompt - cached, token_count(details, "cache_write_tokens"))
    reasoning = min(completion, token_count(member(usage, "completion_tokens_details"), "reasoning_tokens"))
    return CompletionUsage(
        input_tokens=prompt - cached - written,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        output_tokens=completion - reasoning,
        reasoning_tokens=reasoning,
    )
