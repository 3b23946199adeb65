"""What calls to an LLM leave behind: metrics, the limiter's state, and spans under their record's."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from tests.fakes.provider import MODEL, problem
from tests.support import samples
from tests.support.judging import Desk, asking, in_virtual_time, request
from worker.app.readings import read_limiter
from worker.core.calls import CallFailure
from worker.settings import LimiterSettings
from worker.telemetry import Telemetry, Tracing


def value_of(telemetry: Telemetry, series: str, **labels: str) -> float | None:
    return telemetry.registry.get_sample_value(series, labels)


@in_virtual_time
async def test_every_call_is_timed_and_its_wait_for_the_limits_too() -> None:
    desk = Desk(limits=LimiterSettings(requests_per_minute=60, initial_burst_s=1, burst_s=1))
    for name in ("one", "two", "three"):
        await desk.calls.completion(request(name), asking())
    at = {"provider": desk.provider.name, "model": MODEL}
    assert value_of(desk.telemetry, "attribution_llm_calls_total", end="complete", **at) == 3
    assert value_of(desk.telemetry, "attribution_llm_call_seconds_count", **at) == 3
    assert value_of(desk.telemetry, "attribution_llm_call_seconds_sum", **at) == pytest.approx(3)
    assert value_of(desk.telemetry, "attribution_limiter_wait_seconds_count", **at) == 3


@in_virtual_time
async def test_the_limiters_state_is_read_when_it_is_asked_for() -> None:
    desk = Desk(limits=LimiterSettings(requests_per_minute=60, initial_burst_s=10))
    desk.telemetry.scraped.add(lambda: read_limiter("openai", MODEL, desk.limiter))
    at = {"provider": "openai", "model": MODEL}
    before = value_of(desk.telemetry, "attribution_limiter_available", dimension="requests", **at)
    desk.provider.tell(problem(CallFailure.THROTTLED, status=429))
    await desk.calls.completion(request(), asking())
    after = value_of(desk.telemetry, "attribution_limiter_available", dimension="requests", **at)
    assert before is not None
    assert after is not None
    assert after < before
    speed = value_of(desk.telemetry, "attribution_limiter_speed_ratio", **at)
    assert speed is not None
    assert speed < 1, "a refusal slows down"
    assert value_of(desk.telemetry, "attribution_breaker_state", state="closed", **at) == 1
    assert value_of(desk.telemetry, "attribution_limiter_in_flight_calls", **at) == 0


@in_virtual_time
async def test_a_call_is_a_span_within_its_records_and_a_failed_one_an_error() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    desk = Desk()
    desk.telemetry.tracing = Tracing(provider)
    desk.provider.tell(problem(CallFailure.TRANSIENT))
    with desk.telemetry.tracing.process(samples.record()) as record:
        await desk.calls.completion(request(), asking())
    failed, made, _ = exporter.get_finished_spans()
    assert [failed.name, made.name] == [f"chat {MODEL}"] * 2
    assert [failed.status.status_code, made.status.status_code] == [StatusCode.ERROR, StatusCode.UNSET]
    for span in (failed, made):
        assert span.parent is not None
        assert span.parent.span_id == record.get_span_context().span_id
    assert made.attributes is not None
    assert made.attributes["gen_ai.response.finish_reasons"] == ("complete",)
