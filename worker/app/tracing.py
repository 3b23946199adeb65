"""Who records spans: OpenTelemetry's SDK, an extra that a worker does without."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from worker.app.method import code_version
from worker.settings import ConfigurationError, Settings
from worker.telemetry import Tracing


@asynccontextmanager
async def open_tracing(settings: Settings) -> AsyncIterator[Tracing]:
    """Spans sent by OTLP, as the standard OTEL_... variables say; else those of whatever the process has set up.

    Raises:
        ConfigurationError: tracing is wanted, and the extra is not installed.
    """
    if not settings.tracing.enabled:
        yield Tracing()
        return
    try:
        # An extra: imported by those only who ask for it.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError("tracing.enabled needs the extra: pip install 'attribution-worker[otel]'") from None
    service = {"service.name": settings.kafka.client_id, "service.version": code_version()}
    provider = TracerProvider(resource=Resource.create(service))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield Tracing(provider)
    finally:
        # Sends what is left, from a thread: it waits for the network.
        await asyncio.to_thread(provider.shutdown)
