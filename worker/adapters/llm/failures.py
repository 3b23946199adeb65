"""What a failed exchange means: whose fault it is, and whether it may have been billed."""

import re
from collections.abc import Mapping

import httpx2

from worker.adapters.llm.bodies import JsonObject, UnreadableBodyError, json_object, member
from worker.core.calls import CallFailure, CallProblem
from worker.llm_ports import CallFailedError

RAW_CHARACTERS_MAX = 16_384
"""Of a failure's body, for people to read."""

BY_STATUS = {
    400: CallFailure.REJECTED,
    401: CallFailure.DENIED,
    402: CallFailure.QUOTA,
    403: CallFailure.DENIED,
    404: CallFailure.DENIED,
    405: CallFailure.DENIED,
    407: CallFailure.DENIED,
    413: CallFailure.REJECTED,
    422: CallFailure.REJECTED,
    429: CallFailure.THROTTLED,
    503: CallFailure.OVERLOADED,
    529: CallFailure.OVERLOADED,
}
"""Any other redirect is DENIED (the base URL is wrong), any other status TRANSIENT: no record is lost by either."""

QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error"})
REFUSAL_CODES = frozenset({
    "content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation", "invalid_prompt",
    "moderation_blocked",
})  # fmt: skip
BY_CODE_IN_200 = {
    "overloaded_error": CallFailure.OVERLOADED,
    "rate_limit_error": CallFailure.THROTTLED,
    "rate_limit_exceeded": CallFailure.THROTTLED,
    "authentication_error": CallFailure.DENIED,
    "invalid_api_key": CallFailure.DENIED,
    "permission_error": CallFailure.DENIED,
}

QUOTA_WORDS = re.compile(r"credit balance is too low|specified API usage limits")
"""Anthropic says both under a plain 400 invalid_request_error."""

REFUSAL_WORDS = re.compile(r"blocked by content filtering policy")
TOO_LARGE_WORDS = re.compile(r"Request too large for ")
"""OpenAI's, under 429, of a request above a whole minute's tokens: waited for, it would be refused for ever."""

CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What may stand in a message of ours; anything else could be payload."""

NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


def failed_status(status: int, headers: Mapping[str, str], text: str) -> CallFailedError:
    """What an error status means; a provider bills none of them."""
    codes = _codes(_object_or_empty(text))
    failure = _failure(status, codes, refusal_message(text))
    return CallFailedError(_problem(failure, f"HTTP {status}{_named(codes)}", status, headers, text), headers)


def failed_within_200(headers: Mapping[str, str], body: JsonObject, text: str) -> CallFailedError:
    """An error where the completion should be (adk-anthropic-go#32)."""
    codes = _codes(body)
    failure = next((BY_CODE_IN_200[code] for code in sorted(codes) if code in BY_CODE_IN_200), CallFailure.TRANSIENT)
    return CallFailedError(_problem(failure, f"an error under HTTP 200{_named(codes)}", 200, headers, text), headers)


def unreadable(error: UnreadableBodyError, headers: Mapping[str, str], text: str) -> CallFailedError:
    """A 200 without the completion that may have been paid for: as lost as one that never came."""
    problem = CallProblem(
        failure=CallFailure.TRANSIENT,
        detail=f"HTTP 200, but {error}",
        status=httpx2.codes.OK,
        response_lost=True,
        raw=text[:RAW_CHARACTERS_MAX],
    )
    return CallFailedError(problem, headers)


def failed_connection(error: Exception) -> CallFailedError:
    """No response: unless the connection itself failed, the provider may have done, and billed, the work."""
    cause = error.__cause__ or error
    problem = CallProblem(
        failure=CallFailure.TRANSIENT,
        detail=f"no response ({type(cause).__name__})",
        response_lost=not isinstance(cause, NEVER_SENT),
    )
    return CallFailedError(problem)


def too_late(timeout_s: float) -> CallFailedError:
    problem = CallProblem(CallFailure.TRANSIENT, f"no whole response within {timeout_s:g} s", response_lost=True)
    return CallFailedError(problem)


def refusal_message(text: str) -> str:
    """What an error body says, in OpenAI's, Azure's, vLLM's and Anthropic's dialects; else the body itself."""
    body = _object_or_empty(text)
    message = member(body, "error").get("message", body.get("message"))
    return (message if isinstance(message, str) else text)[:RAW_CHARACTERS_MAX]


def _problem(failure: CallFailure, detail: str, status: int, headers: Mapping[str, str], text: str) -> CallProblem:
    return CallProblem(
        failure=failure,
        detail=detail,
        status=status,
        retry_after=headers.get("retry-after"),
        raw=text[:RAW_CHARACTERS_MAX],
    )


def _named(codes: frozenset[str]) -> str:
    return f" ({', '.join(sorted(codes))})" if codes else ""


def _failure(status: int, codes: frozenset[str], message: str) -> CallFailure:
    if codes & QUOTA_CODES or (status == httpx2.codes.BAD_REQUEST and QUOTA_WORDS.search(message)):
        return CallFailure.QUOTA
    if codes & REFUSAL_CODES or (status == httpx2.codes.BAD_REQUEST and REFUSAL_WORDS.search(message)):
        return CallFailure.REFUSED
    if status == httpx2.codes.TOO_MANY_REQUESTS and TOO_LARGE_WORDS.match(message):
        return CallFailure.REJECTED
    if httpx2.codes.is_redirect(status):
        return CallFailure.DENIED
    return BY_STATUS.get(status, CallFailure.TRANSIENT)


def _codes(body: JsonObject) -> frozenset[str]:
    """The codes and types an error body names."""
    error = member(body, "error")
    named = [error.get("code"), error.get("type"), member(error, "innererror").get("code")]
    return frozenset(value for value in named if isinstance(value, str) and CODE.fullmatch(value))


def _object_or_empty(text: str) -> JsonObject:
    try:
        return json_object(text)
    except UnreadableBodyError:
        return {}
