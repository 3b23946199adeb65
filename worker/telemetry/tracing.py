"""Spans by OpenTelemetry's API: what a record, a call and a save took. Where nobody records them they cost nothing."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import trace
from opentelemetry.trace import Link, NoOpTracerProvider, ProxyTracerProvider, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from worker.core.calls import CallProblem
from worker.core.llm import Completion, CompletionRequest
from worker.core.records import Record

UNRECORDED: AbstractContextManager[Span] = nullcontext(trace.INVALID_SPAN)
TRACEPARENT = ("traceparent", "ce_traceparent")
W3C = TraceContextTextMapPropagator()


class Tracing:
    """Spans of one worker; attributes are numbers and names, never payload text.

    Without a provider it is the process's own, as set when this is made; whether anybody records is decided then.
    """

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        chosen = provider or trace.get_tracer_provider()
        self.is_recording = not isinstance(chosen, ProxyTracerProvider | NoOpTracerProvider)
        self._tracer = chosen.get_tracer("attribution-worker")

    def process(self, record: Record) -> AbstractContextManager[Span]:
        """A record from its start to its outcome, linked to who produced it."""
        if not self.is_recording:
            return UNRECORDED
        attributes: dict[str, AttributeValue] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": record.topic,
            "messaging.destination.partition.id": str(record.partition),
            "messaging.kafka.offset": record.offset,
        }
        return self._span(f"process {record.topic}", SpanKind.CONSUMER, attributes, _links(record))

    def settle(self) -> AbstractContextManager[Span]:
        """The transaction that gives a record its outcome."""
        return (
            self._span("settle", SpanKind.CLIENT, {"db.system.name": "postgresql"}) if self.is_recording else UNRECORDED
        )

    def chat(self, provider: str, model: str, request: CompletionRequest) -> AbstractContextManager[Span]:
        """A call to an LLM, by the conventions for generative AI; `call_made` and `call_failed` add how it ended."""
        if not self.is_recording:
            return UNRECORDED
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.system": provider,  # the same by its former name, which most backends still look for
            "gen_ai.request.model": model,
            "gen_ai.request.max_tokens": request.output_tokens_max,
            "gen_ai.output.type": "json",
            "attribution.stage": request.stage.value,
        }
        return self._span(f"chat {model}", SpanKind.CLIENT, attributes)

    def call_made(self, completion: Completion) -> None:
        """What the current call used."""
        if not self.is_recording:
            return
        usage = completion.usage
        attributes: dict[str, AttributeValue] = {
            "gen_ai.response.finish_reasons": [completion.finish.value],
            # The conventions count cached tokens as input and reasoning as output; ours are disjoint.
            "gen_ai.usage.input_tokens": usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens + usage.reasoning_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        }
        trace.get_current_span().set_attributes(attributes)

    def call_failed(self, problem: CallProblem) -> None:
        """Why the current call gave nothing."""
        if not self.is_recording:
            return
        span = trace.get_current_span()
        span.set_attribute("error.type", problem.failure.value)
        span.set_status(Status(StatusCode.ERROR))
        if problem.status is not None:
            span.set_attribute("http.response.status_code", problem.status)

    def tell(self, **attributes: AttributeValue) -> None:
        """Facts of the current span, under our own names."""
        if self.is_recording:
            trace.get_current_span().set_attributes(
                {f"attribution.{name}": value for name, value in attributes.items()}
            )

    def traceparent(self) -> str | None:
        """The current span, for the headers of what it causes; None where none is recorded."""
        if not self.is_recording or not trace.get_current_span().is_recording():
            return None
        carrier: dict[str, str] = {}
        W3C.inject(carrier)
        return carrier.get("traceparent")

    def trace_id(self) -> str | None:
        """Of the current span, as a log line names it."""
        if not self.is_recording:
            return None
        context = trace.get_current_span().get_span_context()
        return trace.format_trace_id(context.trace_id) if context.is_valid else None

    @contextmanager
    def _span(
        self, name: str, kind: SpanKind, attributes: dict[str, AttributeValue], links: list[Link] | None = None
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            name,
            kind=kind,
            attributes=attributes,
            links=links,
            # Both would copy what an exception says, and that may quote payload.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(Status(StatusCode.ERROR))
                raise


def _links(record: Record) -> list[Link]:
    """The producer's span, where the record's headers name one."""
    headers = dict(record.headers)
    named = next((headers[name] for name in TRACEPARENT if headers.get(name)), None)
    if named is None:
        return []
    carried = W3C.extract({"traceparent": named.decode("ascii", "replace")})
    producer = trace.get_current_span(carried).get_span_context()
    return [Link(producer)] if producer.is_valid else []
