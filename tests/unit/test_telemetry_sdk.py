"""Who records: the extra where it is asked for, and a clear word where it is missing."""

import sys
import threading
from collections.abc import Sequence
from types import ModuleType

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from tests.support import samples
from worker.app.tracing import open_tracing
from worker.settings import ConfigurationError, Settings, TracingSettings

EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
ENABLED = Settings(tracing=TracingSettings(enabled=True))


class Collector(SpanExporter):
    """Stands where OTLP's exporter does; tests reach no network."""

    exported: list[ReadableSpan]
    threads: set[int]

    def __init__(self) -> None:
        Collector.exported = []
        Collector.threads = set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        Collector.exported += spans
        Collector.threads.add(threading.get_ident())
        return SpanExportResult.SUCCESS


async def test_without_the_extra_tracing_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, EXPORTER, None)
    with pytest.raises(ConfigurationError, match=r"attribution-worker\[otel\]"):
        async with open_tracing(ENABLED):
            raise AssertionError("there is nothing to record with")


async def test_what_was_recorded_is_sent_before_the_worker_leaves_and_never_from_its_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType(EXPORTER)
    module.OTLPSpanExporter = Collector  # type: ignore[attr-defined]  # the one name that is imported
    for name in ("opentelemetry.exporter", "opentelemetry.exporter.otlp", "opentelemetry.exporter.otlp.proto"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", ModuleType("http"))
    monkeypatch.setitem(sys.modules, EXPORTER, module)
    async with open_tracing(ENABLED) as tracing:
        with tracing.process(samples.record()):
            pass
    [span] = Collector.exported
    assert span.resource.attributes["service.name"] == "attribution-worker"
    assert threading.get_ident() not in Collector.threads


async def test_unless_asked_for_nothing_is_recorded() -> None:
    async with open_tracing(Settings()) as tracing:
        assert not tracing.is_recording
