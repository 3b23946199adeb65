"""OpenAI's chat completions on the wire."""

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from worker.core.llm import CompletionUsage
from worker.embedded.llm_emulator.model_rules import ModelRules
from worker.embedded.llm_emulator.nouns import Api, Call, ErrorKind, HttpRequest, RefusedError, Segment, Spoken
from worker.embedded.llm_emulator.rate_limits import BucketState, Exceeded, Limited
from worker.embedded.llm_emulator.schemas import schema_problem
from worker.embedded.llm_emulator.wire import Json, RulesOf, output_cap, text_of

TEXT_TYPES: Final = frozenset({"text"})
SYSTEM_ROLES: Final = frozenset({"system", "developer"})

PARAMETERS: Final = frozenset({
    "model", "messages", "response_format", "temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "n",
    "stop", "user", "metadata", "service_tier", "store", "reasoning_effort", "verbosity", "prompt_cache_key",
    "prompt_cache_retention", "safety_identifier", "presence_penalty", "frequency_penalty",
})  # fmt: skip

UNCAPPED_OUTPUT_TOKENS: Final = 4_096
"""What a request without a cap is taken to ask for."""

STATUS_TYPE_CODE_MESSAGE: Final[Mapping[ErrorKind, tuple[int, str, str | None, str]]] = {
    ErrorKind.RATE_LIMIT: (429, "tokens", "rate_limit_exceeded", "Rate limit reached. Please try again later."),
    ErrorKind.QUOTA: (
        429,
        "insufficient_quota",
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    ErrorKind.BILLING: (402, "billing_error", "billing_hard_limit_reached", "Billing hard limit has been reached."),
    ErrorKind.SERVER: (
        500,
        "server_error",
        None,
        "The server had an error while processing your request. Sorry about that!",
    ),
    ErrorKind.UNAVAILABLE: (503, "server_error", None, "The engine is currently overloaded, please try again later."),
    ErrorKind.OVERLOADED: (529, "overloaded_error", "overloaded", "Overloaded"),
    ErrorKind.TIMEOUT: (408, "timeout", None, "Request timed out."),
    ErrorKind.UNAUTHORIZED: (401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided: {key}."),
    ErrorKind.FORBIDDEN: (403, "invalid_request_error", "unsupported_country_region_territory", "Not supported here."),
    ErrorKind.NOT_FOUND: (
        404,
        "invalid_request_error",
        "model_not_found",
        "The model does not exist or you do not have access to it.",
    ),
    ErrorKind.TOO_LARGE: (413, "invalid_request_error", None, "The request body is too large."),
    ErrorKind.INVALID: (400, "invalid_request_error", None, "The request is not valid."),
    ErrorKind.CONTENT_FILTER: (
        400,
        "invalid_request_error",
        "content_filter",
        "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
    ),
}


class OpenAIWire:
    """`POST …/chat/completions`."""

    api = Api.OPENAI

    def key(self, request: HttpRequest) -> str | None:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        return bearer or request.headers.get("api-key")

    def call(self, body: Json, request: HttpRequest, rules_of: RulesOf) -> Call:  # noqa: ARG002  # a header is Anthropic's need
        if unknown := sorted(body.keys() - PARAMETERS):
            raise RefusedError(ErrorKind.INVALID, f"Unrecognized request argument supplied: {unknown[0]}")
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise RefusedError(ErrorKind.INVALID, "you must provide a model parameter")
        rules = rules_of(model)
        if not rules.exists:
            message = f"The model `{model}` does not exist or you do not have access to it."
            raise RefusedError(ErrorKind.NOT_FOUND, message, code="model_not_found")
        _check_parameters(body, rules)
        system, message = _messages(body.get("messages"))
        schema = _schema(body.get("response_format"), rules)
        return Call(
            api=Api.OPENAI,
            model=model,
            segments=(Segment(schema), Segment(system), Segment(message)),
            message=message,
            schema=schema or system,
            output_tokens_max=_cap(body, rules, model),
        )

    def error(self, refused: RefusedError, request_id: str, key: str | None) -> tuple[int, Json]:  # noqa: ARG002  # is in a header
        status, error_type, code, message = STATUS_TYPE_CODE_MESSAGE[refused.kind]
        error: dict[str, Any] = {
            "message": refused.message or message.format(key=key),
            "type": error_type,
            "param": None,
            "code": code,
            **refused.named,
        }
        if refused.kind is ErrorKind.CONTENT_FILTER:
            results = {"violence": {"filtered": True, "severity": "medium"}, "hate": {"filtered": False}}
            error |= {
                "param": "prompt",
                "type": None,
                "status": status,
                "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": results},
            }
        return status, {"error": error}

    def exceeded(self, exceeded: Exceeded, model: str) -> RefusedError:
        unit = "requests per min (RPM)" if exceeded.limited is Limited.REQUESTS else "tokens per min (TPM)"
        if exceeded.wait_s is None:
            message = (
                f"Request too large for {model} on {unit}: Limit {exceeded.limit}, Requested {exceeded.requested}."
            )
        else:
            message = (
                f"Rate limit reached for {model} on {unit}: Limit {exceeded.limit}, "
                f"Used {exceeded.limit - exceeded.remaining}, Requested {exceeded.requested}. "
                f"Please try again in {duration(exceeded.wait_s)}."
            )
        limited = "requests" if exceeded.limited is Limited.REQUESTS else "tokens"
        return RefusedError(ErrorKind.RATE_LIMIT, message, type=limited)

    def completion(
        self, call: Call, spoken: Spoken, usage: CompletionUsage, completion_id: str, created: datetime
    ) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": spoken.text,
            "refusal": spoken.refusal,
            "annotations": [],
        }
        if spoken.has_tool_calls:
            function = {"name": "search", "arguments": "{}"}
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": spoken.finish}
        return {
            "id": completion_id,
            "object": "chat.completion",
            "created": int(created.timestamp()),
            "model": call.model,
            "choices": [choice] if spoken.has_choices else [],
            "usage": _usage(usage),
            "service_tier": "default",
            "system_fingerprint": "fp_emulated",
        }

    def completion_id(self, number: int) -> str:
        return f"chatcmpl-{number:020d}"

    def finish(self, *, is_cut: bool) -> str:
        return "length" if is_cut else "stop"

    def headers(self, request_id: str) -> Json:
        return {"x-request-id": request_id, "openai-version": "2020-10-01", "openai-organization": "emulated"}

    def limit_headers(self, states: Mapping[Limited, BucketState], now: datetime) -> Json:  # noqa: ARG002  # tells waits, no times
        named = {Limited.REQUESTS: "requests", Limited.TOKENS: "tokens"}
        headers = {}
        for limited, name in named.items():
            if state := states.get(limited):
                headers[f"x-ratelimit-limit-{name}"] = str(state.limit)
                headers[f"x-ratelimit-remaining-{name}"] = str(state.remaining)
                headers[f"x-ratelimit-reset-{name}"] = duration(state.reset_s)
        return headers

    def retry_headers(self, wait_s: float) -> Json:
        return {"retry-after": str(max(1, math.ceil(wait_s))), "retry-after-ms": str(math.ceil(wait_s * 1_000))}


def duration(seconds: float) -> str:
    """As the headers say it: `120ms`, `7.66s`, `1m12s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1_000)}ms"
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)}m{math.ceil(rest)}s" if minutes else f"{rest:.3f}".rstrip("0").rstrip(".") + "s"


def _check_parameters(body: Json, rules: ModelRules) -> None:
    if rules.always_reasons and body.get("temperature", 1) != 1:
        message = (
            f"Unsupported value: 'temperature' does not support {body['temperature']} with this model. "
            "Only the default (1) value is supported."
        )
        raise RefusedError(ErrorKind.INVALID, message, param="temperature", code="unsupported_value")
    if rules.always_reasons and "max_tokens" in body:
        message = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        raise RefusedError(ErrorKind.INVALID, message, param="max_tokens", code="unsupported_parameter")
    if not rules.takes_max_completion_tokens and "max_completion_tokens" in body:
        raise RefusedError(ErrorKind.INVALID, "Unrecognized request argument supplied: max_completion_tokens")


def _messages(messages: object) -> tuple[str, str]:
    """The instructions, and what the user says."""
    if not isinstance(messages, list) or not messages:
        raise RefusedError(ErrorKind.INVALID, "[] is too short - 'messages'", param="messages")
    said: dict[bool, list[str]] = {True: [], False: []}
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise RefusedError(ErrorKind.INVALID, f"messages[{position}] must be an object", param="messages")
        text = text_of(message.get("content"), TEXT_TYPES, f"messages[{position}].content")
        said[message.get("role") in SYSTEM_ROLES].append(text)
    return "\n\n".join(said[True]), "\n\n".join(said[False])


def _schema(response_format: object, rules: ModelRules) -> str:
    """The schema of a structured reply as compact JSON, empty when none is asked for."""
    if response_format is None:
        return ""
    wanted = response_format if isinstance(response_format, Mapping) else {}
    if wanted.get("type") != "json_schema":
        return ""
    if not rules.takes_structured_output:
        message = "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."
        raise RefusedError(ErrorKind.INVALID, message)
    named = wanted.get("json_schema")
    if not isinstance(named, Mapping) or not isinstance(named.get("name"), str):
        message = "Missing required parameter: 'response_format.json_schema'."
        raise RefusedError(ErrorKind.INVALID, message, param="response_format.json_schema")
    problem = schema_problem(named.get("schema")) if named.get("strict") is True else None
    if problem:
        message = f"Invalid schema for response_format '{named['name']}': {problem}"
        raise RefusedError(ErrorKind.INVALID, message, param="response_format", code="invalid_json_schema")
    return json.dumps(named.get("schema"), separators=(",", ":"), ensure_ascii=False)


def _cap(body: Json, rules: ModelRules, model: str) -> int:
    name = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
    if body.get(name) is None:
        return min(UNCAPPED_OUTPUT_TOKENS, rules.output_tokens_max)
    return output_cap(body[name], name, rules, model)


def _usage(usage: CompletionUsage) -> Json:
    """Not disjoint: the prompt's tokens include what came from the cache, the completion's what was reasoning."""
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    completion = usage.output_tokens + usage.reasoning_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
