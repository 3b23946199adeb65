"""What the worker shows of itself: logs, checks and metrics, spans."""

from enum import StrEnum

from pydantic import Field

from worker.settings.section import PORT_MAX, Section


class LogFormat(StrEnum):
    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class LogSettings(Section):
    """One canonical line per record, on standard error."""

    level: str = Field("info", pattern="^(debug|info|warning|error)$", description="debug, info, warning or error")
    format: LogFormat = Field(LogFormat.AUTO, description="json, console, or auto: console on a terminal")


class HttpSettings(Section):
    """/livez, /readyz and /metrics. Off unless asked for: several workers may share a machine, a port is one's own."""

    enabled: bool = Field(False, description="serve them; the container image does")
    host: str = Field("127.0.0.1", description="loopback unless set; it has no access control of its own")
    port: int = Field(9464, ge=0, le=PORT_MAX, description="0 takes a free one, told in the log")
    request_timeout_s: float = Field(5.0, gt=0, description="one request and its response")
    connections_max: int = Field(64, ge=1, description="at once; more are turned away")
    silent_s_max: float = Field(120.0, gt=0, description="a poll loop that does not turn for this long is not live")
    starved_s_max: float = Field(
        300.0, gt=0, description="a worker that reads nothing for this long although records are there is not live"
    )
    look_interval_s: float = Field(15.0, gt=0, description="how often the database is looked at, for all who ask")
    look_timeout_s: float = Field(5.0, gt=0, description="one look; past it the database counts as unreachable")


class TracingSettings(Section):
    """OpenTelemetry spans, sent by OTLP as the standard OTEL_... variables say."""

    enabled: bool = Field(False, description="needs the extra attribution-worker[otel]")
