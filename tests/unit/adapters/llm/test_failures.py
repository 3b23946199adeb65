"""Every status has one meaning, and what an error body says can only make it milder for the record."""

import json

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.adapters.llm.failures import (
    RAW_CHARACTERS_MAX,
    failed_connection,
    failed_status,
    failed_within_200,
    refusal_message,
    too_late,
)
from worker.core.calls import CallFailure


def failure(status: int, **error: object) -> CallFailure:
    return failed_status(status, {}, json.dumps({"error": error})).problem.failure


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (301, CallFailure.DENIED),
        (400, CallFailure.REJECTED),
        (401, CallFailure.DENIED),
        (402, CallFailure.QUOTA),
        (403, CallFailure.DENIED),
        (404, CallFailure.DENIED),
        (405, CallFailure.DENIED),
        (408, CallFailure.TRANSIENT),
        (409, CallFailure.TRANSIENT),
        (413, CallFailure.REJECTED),
        (418, CallFailure.TRANSIENT),
        (422, CallFailure.REJECTED),
        (425, CallFailure.TRANSIENT),
        (429, CallFailure.THROTTLED),
        (499, CallFailure.TRANSIENT),
        (500, CallFailure.TRANSIENT),
        (502, CallFailure.TRANSIENT),
        (503, CallFailure.OVERLOADED),
        (504, CallFailure.TRANSIENT),
        (520, CallFailure.TRANSIENT),
        (529, CallFailure.OVERLOADED),
    ],
)
def test_a_status_alone(status: int, expected: CallFailure) -> None:
    problem = failed_status(status, {}, "").problem
    assert (problem.failure, problem.status, problem.response_lost) == (expected, status, False)


def test_a_request_above_a_whole_minutes_tokens_is_not_waited_for() -> None:
    """It is refused under the status of a rate limit, and always will be."""
    told = "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 31000."
    assert failure(429, code="rate_limit_exceeded", message=told) is CallFailure.REJECTED
    reached = "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000."
    assert failure(429, code="rate_limit_exceeded", message=reached) is CallFailure.THROTTLED


def test_an_account_without_money_is_not_a_rate_limit() -> None:
    assert failure(429, code="insufficient_quota") is CallFailure.QUOTA
    assert failure(429, code="rate_limit_exceeded") is CallFailure.THROTTLED


@pytest.mark.parametrize(
    "message",
    [
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.",
        "You have reached your specified API usage limits. You will regain access on 2026-07-01 at 00:00 UTC.",
    ],
)
def test_anthropic_says_that_money_is_out_under_a_plain_400(message: str) -> None:
    """Taken for a bad request it would set aside every record of the topic."""
    assert failure(400, type="invalid_request_error", message=message) is CallFailure.QUOTA
    assert failure(500, type="api_error", message=message) is CallFailure.TRANSIENT


@pytest.mark.parametrize(
    "error",
    [
        {"code": "content_filter"},
        {"code": "invalid_prompt"},
        {"innererror": {"code": "ResponsibleAIPolicyViolation"}},
        {"message": "Output blocked by content filtering policy"},
    ],
)
def test_content_that_a_provider_will_not_judge(error: dict[str, object]) -> None:
    assert failure(400, **error) is CallFailure.REFUSED


def test_retry_after_is_handed_on_as_it_was_written() -> None:
    assert failed_status(429, {"retry-after": "soon"}, "").problem.retry_after == "soon"


def test_a_message_of_ours_quotes_codes_and_no_text() -> None:
    body = json.dumps({"error": {"code": "what the user asked", "type": "a_type", "message": "what the user asked"}})
    error = failed_status(400, {}, body)
    assert str(error) == "rejected: HTTP 400 (a_type)"


@given(st.integers(300, 599), st.text(max_size=200) | st.binary(max_size=200).map(lambda b: b.decode("latin-1")))
def test_any_error_body_has_a_meaning(status: int, text: str) -> None:
    problem = failed_status(status, {}, text).problem
    assert problem.failure in CallFailure
    assert not problem.response_lost


def test_a_long_error_body_is_cut() -> None:
    assert len(failed_status(500, {}, "x" * 10**6).problem.raw or "") == RAW_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("overloaded_error", CallFailure.OVERLOADED),
        ("rate_limit_exceeded", CallFailure.THROTTLED),
        ("invalid_api_key", CallFailure.DENIED),
        ("anything", CallFailure.TRANSIENT),
    ],
)
def test_an_error_under_200_means_what_its_code_says(code: str, expected: CallFailure) -> None:
    """adk-anthropic-go#32: an SDK looks at the status alone."""
    assert failed_within_200({}, {"error": {"type": code}}, "").problem.failure is expected


@pytest.mark.parametrize(
    ("cause", "lost"),
    [
        (httpx2.ConnectError("x"), False),
        (httpx2.ConnectTimeout("x"), False),
        (httpx2.PoolTimeout("x"), False),
        (httpx2.ReadTimeout("x"), True),
        (httpx2.ReadError("x"), True),
        (httpx2.WriteError("x"), True),
        (httpx2.RemoteProtocolError("x"), True),
    ],
)
def test_a_response_is_lost_unless_there_was_no_connection(cause: Exception, lost: bool) -> None:
    error = RuntimeError("the SDK's own")
    error.__cause__ = cause
    problem = failed_connection(error).problem
    assert (problem.failure, problem.response_lost) == (CallFailure.TRANSIENT, lost)


def test_past_its_deadline_a_call_may_have_been_billed() -> None:
    assert too_late(5).problem.response_lost


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"error": {"message": "openai"}}', "openai"),
        ('{"type": "error", "error": {"type": "x", "message": "anthropic"}}', "anthropic"),
        ('{"object": "error", "message": "vllm"}', "vllm"),
        ('{"error": "words"}', '{"error": "words"}'),
        ("<html>", "<html>"),
    ],
)
def test_what_an_error_body_says_in_every_dialect(text: str, message: str) -> None:
    assert refusal_message(text) == message
