import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from worker.core.charging import Dimension
from worker.core.ratelimit_headers import COUNT_MAX, HEADER_NAMES, WAIT_S_MAX, RateLimitStatus, read_headers

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
NAMES = [
    "Retry-After",
    "retry-after-ms",
    "Date",
    *(
        pattern.format(part)
        for patterns in HEADER_NAMES.values()
        for pattern in patterns
        for part in ("limit", "remaining", "reset")
    ),
]
ODD = ["", "-1", "NaN", "inf", "1e999", "soon", "6m0", "m", "9" * 70, "9" * 20, "-5s", "1.2.3", "٣", "Infinity", "0x10"]
ODD_TIMES = [
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00+14:00",
    "2026-13-45T99:99:99Z",
    "Sun, 99 Foo 9999 99:99:99 GMT",
    "Mon, 01 Jan 0001 00:00:00 +2359",
]
GARBAGE = st.text(max_size=80) | st.sampled_from(ODD) | st.sampled_from(ODD_TIMES)


def retry_after_s(**headers: str) -> float | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return read_headers(named, wall_s=NOW.timestamp()).retry_after_s


def test_openais_headers_are_read() -> None:
    headers = {
        "x-ratelimit-limit-requests": "600",
        "x-ratelimit-remaining-requests": "599",
        "x-ratelimit-reset-requests": "100ms",
        "X-RateLimit-Limit-Tokens": "200000",
        "X-RateLimit-Remaining-Tokens": "149984",
        "X-RateLimit-Reset-Tokens": "6m0s",
    }
    assert read_headers(headers, wall_s=0).statuses == {
        Dimension.REQUESTS: RateLimitStatus(600, 599, 0.1),
        Dimension.TOKENS: RateLimitStatus(200_000, 149_984, 360.0),
    }


def test_anthropics_headers_are_read_and_their_times_measured_against_the_responses_own_date() -> None:
    """A worker whose clock is an hour off must not wait for an hour."""
    headers = {
        "date": format_datetime(NOW, usegmt=True),
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": "2026-03-01T12:00:01Z",
        "anthropic-ratelimit-input-tokens-limit": "30000",
        "anthropic-ratelimit-input-tokens-remaining": "29000",
        "anthropic-ratelimit-input-tokens-reset": "2026-03-01T12:00:02+00:00",
        "anthropic-ratelimit-output-tokens-limit": "8000",
        "anthropic-ratelimit-output-tokens-remaining": "0",
        "anthropic-ratelimit-output-tokens-reset": "2026-03-01T13:01:00+01:00",
    }
    skewed = (NOW + timedelta(hours=1)).timestamp()
    assert read_headers(headers, wall_s=skewed).statuses == {
        Dimension.REQUESTS: RateLimitStatus(50, 49, 1.0),
        Dimension.INPUT_TOKENS: RateLimitStatus(30_000, 29_000, 2.0),
        Dimension.OUTPUT_TOKENS: RateLimitStatus(8_000, 0, 60.0),
    }


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("1s", 1), ("6m0s", 360), ("59.7ms", 0.0597), ("1h2m3.5s", 3_723.5), ("26", 26), ("250us", 0.00025), ("0s", 0)],
)
def test_a_duration_is_read_as_the_providers_write_it(written: str, seconds: float) -> None:
    headers = {"x-ratelimit-limit-tokens": "10", "x-ratelimit-reset-tokens": written}
    reset_s = read_headers(headers, wall_s=0).statuses[Dimension.TOKENS].reset_s
    assert reset_s == pytest.approx(seconds, abs=1e-12)


@pytest.mark.parametrize("written", ["6m0", "m", "1 s", "-1s", "1s2", "s1", "1w", "", "1.s"])
def test_what_is_no_duration_says_nothing(written: str) -> None:
    headers = {"x-ratelimit-limit-tokens": "10", "x-ratelimit-reset-tokens": written}
    assert read_headers(headers, wall_s=0).statuses[Dimension.TOKENS].reset_s is None


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("0", 0.0),
        ("1", 1.0),
        ("130", 130.0),
        ("1.5", 1.5),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(days=90), usegmt=True), 0.0),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("99999999", WAIT_S_MAX),
        ("Fri, 31 Dec 9999 23:59:59 GMT", WAIT_S_MAX),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_never_negative_or_endless(written: str, seconds: float | None) -> None:
    assert retry_after_s(Retry_After=written) == seconds


def test_milliseconds_are_more_exact_than_seconds() -> None:
    assert retry_after_s(retry_after="1", retry_after_ms="59") == 0.059


@given(headers=st.dictionaries(st.sampled_from(NAMES), GARBAGE), wall_s=st.floats(0, 4e9))
@example(headers={"anthropic-ratelimit-tokens-limit": "1", "anthropic-ratelimit-tokens-reset": "9" * 60}, wall_s=0)
def test_garbage_never_raises_and_never_makes_a_negative_or_endless_wait(
    headers: dict[str, str], wall_s: float
) -> None:
    said = read_headers(headers, wall_s=wall_s)
    waits = [said.retry_after_s, *(status.reset_s for status in said.statuses.values())]
    counts = [count for status in said.statuses.values() for count in (status.limit, status.remaining)]
    assert all(wait is None or (math.isfinite(wait) and 0 <= wait <= WAIT_S_MAX) for wait in waits)
    assert all(count is None or 0 <= count <= COUNT_MAX for count in counts)


@given(headers=st.dictionaries(st.text(max_size=20), st.text(max_size=20)))
def test_headers_of_others_say_nothing(headers: dict[str, str]) -> None:
    assert read_headers(headers, wall_s=0).statuses == {}


@given(st.integers(0, 86_399_999))
def test_a_duration_survives_being_written_as_go_writes_it(milliseconds: int) -> None:
    seconds, rest = divmod(milliseconds, 1_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    headers = {"x-ratelimit-limit-tokens": "1", "x-ratelimit-reset-tokens": f"{hours}h{minutes}m{seconds}.{rest:03d}s"}
    reset_s = read_headers(headers, wall_s=0).statuses[Dimension.TOKENS].reset_s
    assert reset_s == pytest.approx(milliseconds / 1_000)
