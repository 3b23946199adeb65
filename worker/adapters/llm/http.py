"""One HTTP exchange with a provider: deadlines, failures in our words, and one parameter downgrade."""

from collections.abc import Awaitable, Callable

import httpx2

from worker.adapters.llm.bodies import UnreadableBodyError, json_object, member
from worker.adapters.llm.profiles import CapabilityProfile, downgraded
from worker.core.calls import CallFailure, CallProblem
from worker.llm_ports import CallFailedError, Reply

CONNECT_TIMEOUT_S = 10.0
KEEPALIVE_EXPIRY_S = 15.0
"""Short: providers drop idle connections, and a reset on a reused one looks like a lost call."""

FAILURES_BY_STATUS = {
    401: CallFailure.DENIED,
    403: CallFailure.DENIED,
    404: CallFailure.DENIED,
    402: CallFailure.QUOTA,
    429: CallFailure.THROTTLED,
    503: CallFailure.OVERLOADED,
    529: CallFailure.OVERLOADED,
    408: CallFailure.TRANSIENT,
    409: CallFailure.TRANSIENT,
}
QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
REFUSAL_CODES = frozenset({"content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation"})


def http_client(*, connections_max: int) -> httpx2.AsyncClient:
    """The one client of a provider and process; the limiter, not the pool, decides how many calls are in flight."""
    limits = httpx2.Limits(
        max_connections=connections_max,
        max_keepalive_connections=connections_max,
        keepalive_expiry=KEEPALIVE_EXPIRY_S,
    )
    return httpx2.AsyncClient(limits=limits, follow_redirects=False)


def timeouts(total_s: float) -> httpx2.Timeout:
    """Per-phase bounds; the total deadline is the caller's `asyncio.timeout`."""
    return httpx2.Timeout(total_s, connect=min(CONNECT_TIMEOUT_S, total_s), pool=total_s)


class LearningProfile:
    """A model's profile; a parameter refused once is left out from then on, in this process."""

    def __init__(self, profile: CapabilityProfile) -> None:
        self.current = profile

    async def call(self, send: Callable[[], Awaitable[Reply]]) -> Reply:
        """Send; after a 400 that names a parameter we can do without, send once more without it."""
        try:
            return await send()
        except CallFailedError as error:
            said = error.problem.raw if error.problem.status == httpx2.codes.BAD_REQUEST else None
            profile = downgraded(self.current, said) if said else None
            if profile is None:
                raise
            self.current = profile
        return await send()


def failed_status(response: httpx2.Response) -> CallFailedError:
    """What a status other than 200 means."""
    failure = FAILURES_BY_STATUS.get(response.status_code)
    codes = _error_codes(response.text)
    if codes & QUOTA_CODES:
        failure = CallFailure.QUOTA
    elif codes & REFUSAL_CODES:
        failure = CallFailure.REFUSED
    elif failure is None:
        failure = (
            CallFailure.TRANSIENT
            if response.status_code >= httpx2.codes.INTERNAL_SERVER_ERROR
            else CallFailure.REJECTED
        )
    problem = CallProblem(
        failure=failure,
        detail=f"HTTP {response.status_code}{_named(codes)}",
        status=response.status_code,
        retry_after=response.headers.get("retry-after"),
        raw=response.text,
    )
    return CallFailedError(problem, dict(response.headers))


def failed_connection(error: Exception) -> CallFailedError:
    """No response: unless the connection itself failed, the provider may have done, and billed, the work."""
    cause = error.__cause__ or error
    never_sent = isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
    problem = CallProblem(
        failure=CallFailure.TRANSIENT,
        detail=f"no response ({type(cause).__name__})",
        response_lost=not never_sent,
    )
    return CallFailedError(problem)


def _error_codes(text: str) -> frozenset[str]:
    """The codes and types an error body names, in OpenAI's, Azure's and Anthropic's dialects."""
    try:
        error = member(json_object(text), "error")
    except UnreadableBodyError:
        return frozenset()
    named = [error.get("code"), error.get("type"), member(error, "innererror").get("code")]
    return frozenset(value for value in named if isinstance(value, str))


def _named(codes: frozenset[str]) -> str:
    return f" ({', '.join(sorted(codes))})" if codes else ""
