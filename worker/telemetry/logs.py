"""Log lines: JSON, or readable on a terminal; constant event names, facts as fields, no payload text."""

import logging
import sys
import traceback

import structlog

from worker.errors import WorkerError
from worker.settings import LogFormat, LogSettings

log: structlog.types.FilteringBoundLogger = structlog.get_logger("worker")

NEVER_QUOTING = (WorkerError, OSError, TypeError, AttributeError, NameError, ImportError, RecursionError)
"""Errors that speak of ourselves, of the system or of our code; others may quote the value they failed at."""


def configure_logging(settings: LogSettings) -> None:
    """One JSON line per event, or readable lines on a terminal; always on standard error."""
    on_terminal = settings.format is LogFormat.CONSOLE or (settings.format is LogFormat.AUTO and sys.stderr.isatty())
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if on_terminal
        else structlog.processors.JSONRenderer()
    )
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    processors: list[structlog.types.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _tell_exceptions,
    ]
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries log through the standard library: same lines, and only what is worth an operator's look.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=processors))
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)


def _tell_exceptions(
    _logger: structlog.types.WrappedLogger, _method: str, event: structlog.types.EventDict
) -> structlog.types.EventDict:
    exc_info = event.pop("exc_info", None)
    error = exc_info if isinstance(exc_info, BaseException) else sys.exc_info()[1] if exc_info is True else None
    if isinstance(exc_info, tuple):
        error = exc_info[1]
    if error is not None:
        event["exception"] = traceback_without_payload(error)
    return event


def traceback_without_payload(error: BaseException) -> str:
    """Frames and types of an exception, its causes and its parts; what it says only where that quotes no payload.

    What a parser, a codec or a look-up says often does.
    """
    told = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    if isinstance(error, NEVER_QUOTING):
        told += f": {error}"
    text = "".join(["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__), told])
    if isinstance(error, BaseExceptionGroup):
        text += "".join(f"\n| {line}" for part in error.exceptions for line in _lines(part))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return text if before is None else f"{traceback_without_payload(before)}\n\nwhich led to\n\n{text}"


def _lines(error: BaseException) -> list[str]:
    return traceback_without_payload(error).splitlines()
