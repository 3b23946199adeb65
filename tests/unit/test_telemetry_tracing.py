"""Spans as OpenTelemetry's own SDK records them, and what they cost where nobody does."""

from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import INVALID_SPAN, NoOpTracerProvider, SpanKind, StatusCode, get_current_span

from schemas.dead_letter import DeadLetterReason
from tests.fakes.judge import FakeJudge
from tests.fakes.store import FakeStore
from tests.support import samples
from worker.app.announcing import build_announcement, build_dead_letter_message
from worker.app.method import build_credit, build_decoder, build_identify, build_retry_policy
from worker.core.calls import CallFailure, CallProblem
from worker.core.llm import Completion, CompletionRequest, CompletionUsage, Finish, Stage
from worker.core.outcome import Outcome
from worker.core.records import Headers, Record
from worker.errors import PermanentError, RetryableError
from worker.judge import JudgeAnswer
from worker.process import Process
from worker.settings import Settings, SettleSettings
from worker.settle import Outages, Settle
from worker.telemetry import Telemetry, Tracing

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PRODUCER_SPAN_ID = "00f067aa0ba902b7"
PRODUCER = f"00-{TRACE_ID}-{PRODUCER_SPAN_ID}-01"
PRODUCED_UNDER: Headers = (("traceparent", PRODUCER.encode()),)
REQUEST = CompletionRequest(Stage.SCORE, "rules", "a secret source", "a secret question", "verdict", {}, 1_500)
COMPLETION = Completion(Finish.COMPLETE, "{}", CompletionUsage(100, 20, 300, 40, 5), raw="{}")


class Recorded:
    """A tracing that keeps its spans, and a line that runs under it."""

    def __init__(self, failures: Sequence[Exception] = ()) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = Tracing(provider)
        self.telemetry = Telemetry(tracing=self.tracing)
        self.store = FakeStore()
        settings = Settings(settle=SettleSettings(attempts_max=1))
        judge = FakeJudge(failures=list(failures))
        process = Process(
            decode=build_decoder(settings, self.telemetry),
            store=self.store,
            judge=JudgeAnswer(judge),
            attribute=build_credit(settings, judge.profile),
            encode=build_announcement(settings, self.tracing),
            on_stored=lambda: None,
            telemetry=self.telemetry,
        )
        self.settle = Settle(
            process=process,
            dead_letters=self.store,
            encode_dead_letter=build_dead_letter_message(settings),
            identify=build_identify(settings),
            on_stored=lambda: None,
            policy=build_retry_policy(settings),
            outages=Outages(),
            telemetry=self.telemetry,
        )

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


def record(headers: Headers = PRODUCED_UNDER) -> Record:
    given = samples.record_of(samples.answer())
    return Record(given.topic, given.partition, given.offset, given.timestamp_ms, given.key, given.value, headers)


def published_traceparent(recorded: Recorded) -> str | None:
    [row] = recorded.store.outbox
    value = dict(row.message.headers).get("traceparent")
    return None if value is None else value.decode()


async def test_a_record_is_a_span_linked_to_its_producer_with_its_save_inside() -> None:
    recorded = Recorded()
    given = record()
    assert await recorded.settle(given) is Outcome.ATTRIBUTED
    process, settle = recorded.spans[f"process {given.topic}"], recorded.spans["settle"]
    assert process.kind is SpanKind.CONSUMER
    [link] = process.links
    assert f"{link.context.trace_id:032x}" == TRACE_ID
    assert f"{link.context.span_id:016x}" == PRODUCER_SPAN_ID
    assert process.attributes is not None
    assert dict(process.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": given.topic,
        "messaging.destination.partition.id": str(given.partition),
        "messaging.kafka.offset": given.offset,
        "attribution.outcome": "attributed",
        "attribution.attempts": 1,
    }
    assert settle.parent is not None
    assert process.context is not None
    assert settle.parent.span_id == process.context.span_id


async def test_the_attribution_goes_out_under_the_span_that_made_it() -> None:
    recorded = Recorded()
    given = record()
    await recorded.settle(given)
    made_in = recorded.spans[f"process {given.topic}"].context
    assert made_in is not None
    sent = published_traceparent(recorded)
    assert sent is not None
    version, trace_id, span_id, _flags = sent.split("-")
    assert (version, trace_id, span_id) == ("00", f"{made_in.trace_id:032x}", f"{made_in.span_id:016x}")


async def test_without_a_recorder_the_answers_own_traceparent_goes_out() -> None:
    recorded = Recorded()
    recorded.tracing.is_recording = False
    await recorded.settle(record())
    assert published_traceparent(recorded) == PRODUCER
    assert recorded.spans == {}


@pytest.mark.parametrize("headers", [(), (("traceparent", b"\xff\xfe"),), (("traceparent", b"00-0-0-01"),)])
async def test_a_record_without_a_readable_producer_has_a_span_without_links(headers: Headers) -> None:
    recorded = Recorded()
    given = record(headers)
    assert await recorded.settle(given) is Outcome.ATTRIBUTED
    assert list(recorded.spans[f"process {given.topic}"].links) == []


async def test_a_dead_letter_is_a_span_with_its_reason_and_keeps_its_own_headers() -> None:
    recorded = Recorded([RetryableError("no usable verdict")])
    given = record()
    assert await recorded.settle(given) is Outcome.DEAD_LETTER
    span = recorded.spans[f"process {given.topic}"]
    assert span.attributes is not None
    assert span.attributes["attribution.outcome"] == "dead_letter"
    assert span.attributes["attribution.dead_letter_reason"] in {reason.value for reason in DeadLetterReason}
    assert published_traceparent(recorded) == PRODUCER


async def test_what_an_exception_says_is_not_recorded_only_what_it_is() -> None:
    recorded = Recorded([ValueError("a secret word")])
    with pytest.raises(ValueError, match="secret"):
        await recorded.settle(record())
    for span in recorded.exporter.get_finished_spans():
        assert "secret" not in span.to_json()
    failed = recorded.spans[f"process {record().topic}"]
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "ValueError"


async def test_no_text_of_an_event_is_in_any_span() -> None:
    recorded = Recorded()
    await recorded.settle(record())
    answer = samples.answer()
    told = "".join(span.to_json() for span in recorded.exporter.get_finished_spans())
    assert not [text for text in (answer.text, answer.query, answer.sources[0].text) if text in told]


def test_a_call_is_a_span_by_the_conventions_for_generative_ai() -> None:
    recorded = Recorded()
    with recorded.tracing.chat("openai", "gpt-5-mini", REQUEST):
        recorded.telemetry.call_made("openai", "gpt-5-mini", Stage.SCORE, COMPLETION, None)
    span = recorded.spans["chat gpt-5-mini"]
    assert span.kind is SpanKind.CLIENT
    assert span.attributes is not None
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.system": "openai",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.request.max_tokens": 1_500,
        "gen_ai.output.type": "json",
        "attribution.stage": "score",
        "gen_ai.response.finish_reasons": ("complete",),
        "gen_ai.usage.input_tokens": 440,
        "gen_ai.usage.output_tokens": 25,
        "gen_ai.usage.cache_read.input_tokens": 300,
        "gen_ai.usage.cache_creation.input_tokens": 40,
    }
    assert "secret" not in span.to_json()


def test_a_failed_call_is_an_error_of_its_kind() -> None:
    recorded = Recorded()
    with recorded.tracing.chat("anthropic", "claude", REQUEST):
        recorded.telemetry.call_failed("anthropic", "claude", CallProblem(CallFailure.THROTTLED, "told", 429))
    span = recorded.spans["chat claude"]
    assert span.attributes is not None
    assert (span.attributes["error.type"], span.attributes["http.response.status_code"]) == ("throttled", 429)
    assert span.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("tracing", [Tracing(), Tracing(NoOpTracerProvider())], ids=["no-sdk", "switched-off"])
def test_where_nobody_records_nothing_is_made(tracing: Tracing) -> None:
    assert not tracing.is_recording
    assert tracing.process(record()) is tracing.settle() is tracing.chat("p", "m", REQUEST)
    with tracing.process(record()) as span:
        assert span is INVALID_SPAN
        assert get_current_span() is INVALID_SPAN
        tracing.tell(outcome="attributed")
        assert (tracing.traceparent(), tracing.trace_id()) == (None, None)


def test_a_log_line_names_the_trace_of_its_record() -> None:
    recorded = Recorded()
    with recorded.tracing.process(record()) as span:
        assert recorded.tracing.trace_id() == f"{span.get_span_context().trace_id:032x}"
    assert recorded.tracing.trace_id() is None


async def test_a_permanent_error_ends_its_span_without_an_error() -> None:
    """A record set aside has its outcome: the worker did what it should."""
    recorded = Recorded([PermanentError(DeadLetterReason.JUDGE_REFUSED, "refused")])
    await recorded.settle(record())
    assert recorded.spans[f"process {record().topic}"].status.status_code is not StatusCode.ERROR
