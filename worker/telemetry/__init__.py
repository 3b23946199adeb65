"""What the worker says about itself: metrics by one typed list, spans, and one canonical log line per record."""

from worker.telemetry.instruments import Reading, one_hot
from worker.telemetry.logs import configure_logging, log, traceback_without_payload
from worker.telemetry.metric_list import METRICS, LineStage, Metric, Position, WorkerState
from worker.telemetry.telemetry import Stopwatch, Telemetry
from worker.telemetry.tracing import Tracing

__all__ = [
    "METRICS",
    "LineStage",
    "Metric",
    "Position",
    "Reading",
    "Stopwatch",
    "Telemetry",
    "Tracing",
    "WorkerState",
    "configure_logging",
    "log",
    "one_hot",
    "traceback_without_payload",
]
