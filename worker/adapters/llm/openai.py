"""OpenAI's chat completions, and whatever speaks the same at another base URL (vLLM, llama.cpp, Azure)."""

from collections.abc import Callable
from typing import Any

import httpx2
import openai
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
from worker.adapters.llm.profiles import Capability, CapabilityProfile, openai_profile
from worker.adapters.llm.words import with_schema_in_words
from worker.core.llm import Completion, CompletionRequest, CompletionUsage, Finish
from worker.llm_ports import Reply

OFFICIAL_BASE_URL = "https://api.openai.com/v1"
ERRORS = SdkErrors(status=openai.APIStatusError, connection=openai.APIConnectionError)
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
        self._exchange = Exchange(
            openai_profile(model, official=base_url in {None, OFFICIAL_BASE_URL}),
            model=model,
            api_key=api_key,
            errors=ERRORS,
            completion_members=frozenset({"choices"}),
        )

    async def complete(self, request: CompletionRequest, *, client_request_id: str, timeout_s: float) -> Reply:
        async def send(profile: CapabilityProfile) -> httpx2.Response:
            # Not by the SDK's method for it, which walks through body and types: a third of OpenAI's CPU per call.
            return await self._client.post(
                "/chat/completions",
                body=self._body(request, profile),
                cast_to=httpx2.Response,
                options={"timeout": timeouts(timeout_s), "headers": {"X-Client-Request-Id": client_request_id}},
            )

        return await self._exchange.complete(send, timeout_s)

    def _body(self, request: CompletionRequest, profile: CapabilityProfile) -> dict[str, Any]:
        system = request.instructions
        body: dict[str, Any] = {"model": self.model}
        if profile.has(Capability.STRUCTURED_OUTPUT):
            schema = {"name": request.schema_name, "strict": True, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        else:
            system = with_schema_in_words(request)
        user = "\n\n".join(part for part in (request.context, request.question) if part)
        body["messages"] = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        if profile.has(Capability.TEMPERATURE):
            body["temperature"] = 0
        cap = "max_completion_tokens" if profile.has(Capability.MAX_COMPLETION_TOKENS) else "max_tokens"
        body[cap] = request.output_tokens_max
        return body

    def read(self, raw: str, request: CompletionRequest) -> Completion:
        return completion_in(raw, request, said_in=_said_in, count_tokens=self._count_tokens)


def _said_in(body: JsonObject) -> Said:
    choice = next(iter(objects(body, "choices")), {})
    message = member(choice, "message")
    content, refusal = message.get("content"), message.get("refusal")
    text = content if isinstance(content, str) else None
    finish = FINISHES.get(str(choice.get("finish_reason")), Finish.UNKNOWN)
    if isinstance(refusal, str) and refusal:
        finish = Finish.REFUSED
    elif finish is Finish.COMPLETE and text is None:
        finish = Finish.UNKNOWN
    return Said(finish, text, _usage(member(body, "usage")))


def _client(http_client: httpx2.AsyncClient, api_key: SecretStr, base_url: str) -> openai.AsyncOpenAI:
    """The SDK's client with nothing but what it is given: it reads OPENAI_… variables for all that is left out."""
    client = openai.AsyncOpenAI(
        api_key=api_key.get_secret_value(), base_url=base_url, http_client=http_client, max_retries=0
    )
    client.organization = client.project = client.admin_api_key = client.webhook_secret = None
    client._custom_headers = {}  # noqa: SLF001  # OPENAI_CUSTOM_HEADERS has no other way out
    return client


def _usage(usage: JsonObject) -> CompletionUsage | None:
    """Disjoint buckets: OpenAI's prompt tokens include cached ones, its completion tokens include reasoning."""
    prompt, completion = token_count(usage, "prompt_tokens"), token_count(usage, "completion_tokens")
    if prompt is None or completion is None:
        return None
    details = member(usage, "prompt_tokens_details")
    cached = min(prompt, token_count(details, "cached_tokens") or 0)
    written = min(prompt - cached, token_count(details, "cache_write_tokens") or 0)
    reasoning = min(completion, token_count(member(usage, "completion_tokens_details"), "reasoning_tokens") or 0)
    return CompletionUsage(
        input_tokens=prompt - cached - written,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        output_tokens=completion - reasoning,
        reasoning_tokens=reasoning,
    )
