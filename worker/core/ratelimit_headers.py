"""What a provider's response headers say about its limits. Garbage reads as nothing said, never as an error."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from worker.core.charging import Dimension

WAIT_S_MAX: Final = 86_400.0
"""A longer wait, however it is written, reads as this; the limiter's own cap is far below."""

COUNT_MAX: Final = 10**12
"""A larger limit or remainder reads as this: as good as none."""

VALUE_CHARACTERS_MAX: Final = 64
"""A longer header is not one of these."""

UNIT_S: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?")
COUNT = re.compile(r"[0-9]{1,20}")
PART = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)(ms|us|µs|ns|d|h|m|s)")

HEADER_NAMES: Final = {
    Dimension.REQUESTS: ("x-ratelimit-{}-requests", "anthropic-ratelimit-requests-{}"),
    Dimension.TOKENS: ("x-ratelimit-{}-tokens", "anthropic-ratelimit-tokens-{}"),
    Dimension.INPUT_TOKENS: ("anthropic-ratelimit-input-tokens-{}",),
    Dimension.OUTPUT_TOKENS: ("anthropic-ratelimit-output-tokens-{}",),
}


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """One limit as the provider sees it: `reset_s` is how long until all of `limit` is there again."""

    limit: int | None
    remaining: int | None
    reset_s: float | None


@dataclass(frozen=True, slots=True)
class RateLimitHeaders:
    """What one response said. Every wait is within 0..`WAIT_S_MAX`, every count within 0..`COUNT_MAX`."""

    statuses: Mapping[Dimension, RateLimitStatus] = field(default_factory=dict)
    retry_after_s: float | None = None


def read_headers(headers: Mapping[str, str], *, wall_s: float) -> RateLimitHeaders:
    """The limits named in `headers`, whatever the case of their names. `wall_s` is now, in seconds since 1970.

    A time of day is measured against the response's own `Date` where it has one: clocks differ.
    """
    said = {name.lower(): value.strip() for name, value in headers.items() if len(value) <= VALUE_CHARACTERS_MAX}
    server_wall_s = _http_date_s(said.get("date", ""))
    now_s = wall_s if server_wall_s is None else server_wall_s
    statuses = {dimension: _status(said, names, now_s) for dimension, names in HEADER_NAMES.items()}
    return RateLimitHeaders(
        statuses={dimension: status for dimension, status in statuses.items() if status is not None},
        retry_after_s=_retry_after_s(said, now_s),
    )


def _status(said: Mapping[str, str], names: tuple[str, ...], now_s: float) -> RateLimitStatus | None:
    for name in names:
        limit = _count(said.get(name.format("limit"), ""))
        remaining = _count(said.get(name.format("remaining"), ""))
        if limit is not None or remaining is not None:
            reset = said.get(name.format("reset"), "")
            reset_s = _duration_s(reset)
            return RateLimitStatus(limit, remaining, _until_s(reset, now_s) if reset_s is None else reset_s)
    return None


def _retry_after_s(said: Mapping[str, str], now_s: float) -> float | None:
    milliseconds = said.get("retry-after-ms", "")
    if NUMBER.fullmatch(milliseconds):
        return _bounded_s(float(milliseconds) / 1000)
    value = said.get("retry-after", "")
    if NUMBER.fullmatch(value):
        return _bounded_s(float(value))
    at_s = _http_date_s(value)
    return None if at_s is None else _bounded_s(at_s - now_s)


def _duration_s(text: str) -> float | None:
    """`59.7ms`, `6m0s`, `1h2m3s`, or a bare number of seconds."""
    if NUMBER.fullmatch(text):
        return _bounded_s(float(text))
    parts = PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return _bounded_s(sum(float(number) * UNIT_S[unit] for number, unit in parts))


def _until_s(text: str, now_s: float) -> float | None:
    """Until an RFC 3339 time; one without a zone is taken as UTC."""
    try:
        at = datetime.fromisoformat(text)
        at_s = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return _bounded_s(at_s - now_s)


def _http_date_s(text: str) -> float | None:
    try:
        at = parsedate_to_datetime(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, IndexError, TypeError):
        return None


def _count(text: str) -> int | None:
    return min(int(text), COUNT_MAX) if COUNT.fullmatch(text) else None


def _bounded_s(seconds: float) -> float:
    return min(max(0.0, seconds), WAIT_S_MAX)
