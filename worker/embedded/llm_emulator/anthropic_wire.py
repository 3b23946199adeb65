"""Anthropic's messages on the wire."""

import json
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from worker.core.llm import CompletionUsage
from worker.embedded.llm_emulator.model_rules import ModelRules
from worker.embedded.llm_emulator.nouns import Api, Call, ErrorKind, HttpRequest, RefusedError, Segment, Spoken
from worker.embedded.llm_emulator.rate_limits import BucketState, Exceeded, Limited
from worker.embedded.llm_emulator.schemas import schema_problem
from worker.embedded.llm_emulator.wire import Json, RulesOf, output_cap

BREAKPOINTS_MAX: Final = 4
ROUNDED_FROM: Final = 10_000
"""Remainders of token limits are told in thousands; smaller limits than this exist only here."""

PARAMETERS: Final = frozenset({
    "model", "messages", "system", "max_tokens", "metadata", "stop_sequences", "temperature", "top_p", "top_k",
    "thinking", "tools", "tool_choice", "service_tier", "output_config", "container", "inference_geo",
})  # fmt: skip

STATUS_TYPE_MESSAGE: Final[Mapping[ErrorKind, tuple[int, str, str]]] = {
    ErrorKind.RATE_LIMIT: (429, "rate_limit_error", "This request would exceed your organization's rate limit."),
    ErrorKind.QUOTA: (
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to purchase credits.",
    ),
    ErrorKind.BILLING: (402, "billing_error", "There is an issue with your billing or payment information."),
    ErrorKind.SERVER: (500, "api_error", "Internal server error"),
    ErrorKind.UNAVAILABLE: (503, "api_error", "Service unavailable"),
    ErrorKind.OVERLOADED: (529, "overloaded_error", "Overloaded"),
    ErrorKind.TIMEOUT: (408, "timeout_error", "Request timed out"),
    ErrorKind.UNAUTHORIZED: (401, "authentication_error", "invalid x-api-key: {key}"),
    ErrorKind.FORBIDDEN: (403, "permission_error", "Your API key does not have permission to use this resource."),
    ErrorKind.NOT_FOUND: (404, "not_found_error", "The requested resource could not be found."),
    ErrorKind.TOO_LARGE: (413, "request_too_large", "Request exceeds the maximum size"),
    ErrorKind.INVALID: (400, "invalid_request_error", "The request is not valid."),
    ErrorKind.CONTENT_FILTER: (400, "invalid_request_error", "Output blocked by content filtering policy"),
}


class AnthropicWire:
    """`POST …/v1/messages`."""

    api = Api.ANTHROPIC

    def key(self, request: HttpRequest) -> str | None:
        return request.headers.get("x-api-key") or request.headers.get("authorization")

    def call(self, body: Json, request: HttpRequest, rules_of: RulesOf) -> Call:
        if "anthropic-version" not in request.headers:
            raise RefusedError(ErrorKind.INVALID, "anthropic-version: header is required")
        if unknown := sorted(body.keys() - PARAMETERS):
            raise RefusedError(ErrorKind.INVALID, f"{unknown[0]}: Extra inputs are not permitted")
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise RefusedError(ErrorKind.INVALID, "model: Field required")
        rules = rules_of(model)
        if not rules.exists:
            raise RefusedError(ErrorKind.NOT_FOUND, f"model: {model}")
        if "max_tokens" not in body:
            raise RefusedError(ErrorKind.INVALID, "max_tokens: Field required")
        cap = output_cap(body["max_tokens"], "max_tokens", rules, model)
        schema = _schema(body.get("output_config"), rules, model)
        system = _blocks(body.get("system") or [], "system")
        said = _message_blocks(body.get("messages"))
        _check_breakpoints([*system, *said], rules)
        return Call(
            api=Api.ANTHROPIC,
            model=model,
            segments=(Segment(schema), *system, *said),
            message="\n\n".join(segment.text for segment in said),
            schema=schema or "\n\n".join(segment.text for segment in system),
            output_tokens_max=cap,
        )

    def error(self, refused: RefusedError, request_id: str, key: str | None) -> tuple[int, Json]:
        status, error_type, message = STATUS_TYPE_MESSAGE[refused.kind]
        error = {"type": error_type, "message": refused.message or message.format(key=key)}
        return status, {"type": "error", "error": error, "request_id": request_id}

    def exceeded(self, exceeded: Exceeded, model: str) -> RefusedError:
        unit = exceeded.limited.value.replace("_", " ")
        message = (
            f"This request would exceed your organization's rate limit of {exceeded.limit:,} {unit} per minute "
            f"(model: {model})."
        )
        return RefusedError(ErrorKind.RATE_LIMIT, message)

    def completion(
        self,
        call: Call,
        spoken: Spoken,
        usage: CompletionUsage,
        completion_id: str,
        created: datetime,  # noqa: ARG002  # messages tell no time
    ) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if spoken.text is not None:
            content.append({"type": "text", "text": spoken.text, "citations": None})
        if spoken.has_tool_calls:
            content.append({"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}})
        is_refusal = spoken.refusal is not None or spoken.finish == "refusal"
        return {
            "id": completion_id,
            "type": "message",
            "role": "assistant",
            "model": call.model,
            "content": content,
            "stop_reason": "refusal" if spoken.refusal is not None else spoken.finish,
            "stop_sequence": None,
            "stop_details": {"type": "refusal", "category": None, "explanation": None} if is_refusal else None,
            "usage": _usage(usage),
        }

    def completion_id(self, number: int) -> str:
        return f"msg_{number:020d}"

    def finish(self, *, is_cut: bool) -> str:
        return "max_tokens" if is_cut else "end_turn"

    def headers(self, request_id: str) -> Json:
        return {"request-id": request_id, "anthropic-organization-id": "emulated"}

    def limit_headers(self, states: Mapping[Limited, BucketState], now: datetime) -> Json:
        headers = {}
        for limited, state in states.items():
            name = limited.value.replace("_", "-")
            is_rounded = limited is not Limited.REQUESTS and state.limit >= ROUNDED_FROM
            remaining = round(state.remaining, -3) if is_rounded else state.remaining
            reset = now + timedelta(seconds=math.ceil(state.reset_s))
            headers[f"anthropic-ratelimit-{name}-limit"] = str(state.limit)
            headers[f"anthropic-ratelimit-{name}-remaining"] = str(remaining)
            headers[f"anthropic-ratelimit-{name}-reset"] = reset.strftime("%Y-%m-%dT%H:%M:%SZ")
        return headers

    def retry_headers(self, wait_s: float) -> Json:
        return {"retry-after": str(max(1, math.ceil(wait_s)))}


def _blocks(content: object, where: str) -> tuple[Segment, ...]:
    """A string, or blocks of text, each of which may end a prefix to be cached."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise RefusedError(ErrorKind.INVALID, f"{where}: Input should be a valid list")
    return tuple(_block(block, f"{where}.{position}") for position, block in enumerate(content))


def _block(block: object, where: str) -> Segment:
    if not isinstance(block, Mapping) or block.get("type") != "text" or not isinstance(block.get("text"), str):
        raise RefusedError(ErrorKind.INVALID, f"{where}: only text is taken here")
    if not block["text"]:
        raise RefusedError(ErrorKind.INVALID, f"{where}: text content blocks must be non-empty")
    return Segment(block["text"], is_breakpoint=block.get("cache_control") is not None)


def _message_blocks(messages: object) -> tuple[Segment, ...]:
    if not isinstance(messages, list) or not messages:
        raise RefusedError(ErrorKind.INVALID, "messages: at least one message is required")
    segments: list[Segment] = []
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping) or message.get("role") not in {"user", "assistant"}:
            raise RefusedError(ErrorKind.INVALID, f"messages.{position}.role: Input should be 'user' or 'assistant'")
        segments.extend(_blocks(message.get("content"), f"messages.{position}.content"))
    return tuple(segments)


def _schema(output_config: object, rules: ModelRules, model: str) -> str:
    """The schema of a structured reply as compact JSON, empty when none is asked for."""
    wanted = output_config.get("format") if isinstance(output_config, Mapping) else None
    if wanted is None:
        return ""
    if not rules.takes_structured_output:
        raise RefusedError(ErrorKind.INVALID, f"output_config.format: '{model}' does not support output format.")
    if not isinstance(wanted, Mapping) or wanted.get("type") != "json_schema":
        raise RefusedError(ErrorKind.INVALID, "output_config.format.type: Input should be 'json_schema'")
    if problem := schema_problem(wanted.get("schema")):
        raise RefusedError(ErrorKind.INVALID, f"output_config.format.schema: {problem}")
    return json.dumps(wanted["schema"], separators=(",", ":"), ensure_ascii=False)


def _check_breakpoints(segments: list[Segment], rules: ModelRules) -> None:
    count = sum(segment.is_breakpoint for segment in segments)
    if count and not rules.takes_cache_control:
        raise RefusedError(ErrorKind.INVALID, "system.0.cache_control: Extra inputs are not permitted")
    if count > BREAKPOINTS_MAX:
        message = f"A maximum of {BREAKPOINTS_MAX} blocks with cache_control may be provided. Found {count}."
        raise RefusedError(ErrorKind.INVALID, message)


def _usage(usage: CompletionUsage) -> Json:
    """Disjoint but for reasoning, which the output includes."""
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_tokens,
            "ephemeral_1h_input_tokens": 0,
        },
        "output_tokens": usage.output_tokens + usage.reasoning_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        "service_tier": "standard",
    }
