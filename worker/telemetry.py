"""What the worker says about itself: metric names as one typed list, and one canonical log line per record."""

import logging
import math
import sys
import time
import traceback
from collections import Counter as CounterOf
from collections.abc import Callable
from decimal import Decimal

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from schemas.dead_letter import DeadLetterReason
from worker.core.calls import CallProblem
from worker.core.llm import Completion, Stage
from worker.core.outcome import Outcome, Processed
from worker.core.records import Record
from worker.errors import WorkerError
from worker.settings import LogFormat, LogSettings

REPEATS_KEPT_MAX = 1_000
"""Different things a library said that are remembered; messages are templates, so there are few."""

log: structlog.types.FilteringBoundLogger = structlog.get_logger("worker")


def configure_logging(settings: LogSettings) -> None:
    """One JSON line per event, or readable lines on a terminal; always on standard error."""
    on_terminal = settings.format is LogFormat.CONSOLE or (settings.format is LogFormat.AUTO and sys.stderr.isatty())
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if on_terminal else structlog.processors.JSONRenderer()
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

    The worker's own errors and the system's never do; what a parser, a codec or a look-up says often does.
    """
    told = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    if isinstance(error, WorkerError | OSError):
        told += f": {error}"
    text = "".join(["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__), told])
    if isinstance(error, BaseExceptionGroup):
        text += "".join(f"\n| {line}" for part in error.exceptions for line in _lines(part))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return text if before is None else f"{traceback_without_payload(before)}\n\nwhich led to\n\n{text}"


def _lines(error: BaseException) -> list[str]:
    return traceback_without_payload(error).splitlines()


class Metrics:
    """Every metric, with its help and unit; one registry per worker, so that two in one process do not collide."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.records = Counter("attribution_records", "Records settled, by outcome.", ["outcome"], registry=registry)
        self.dead_letters = Counter(
            "attribution_dead_letters", "Records set aside, by reason.", ["reason"], registry=registry
        )
        self.attempts_failed = Counter(
            "attribution_attempts_failed", "Attempts that failed by the record's own fault.", registry=registry
        )
        self.outage_waits = Counter(
            "attribution_outage_waits", "Waits for something down; they use up no attempt.", registry=registry
        )
        self.unknown_fields = Counter(
            "attribution_unknown_fields", "Fields of events that this version does not know.", registry=registry
        )
        self.scrubbed_characters = Counter(
            "attribution_scrubbed_characters", "Characters of events that cannot be stored (NUL).", registry=registry
        )
        self.unevidenced_supports = Counter(
            "attribution_unevidenced_supports", "Supports set to 0 for want of evidence.", registry=registry
        )
        self.fallbacks = Counter(
            "attribution_fallbacks", "Answers judged by the fallback, the first judge being down.", registry=registry
        )
        self.judgements_reused = Counter(
            "attribution_judgements_reused", "Answers whose judgement was copied at no cost.", registry=registry
        )
        self.verdict_parts_ignored = Counter(
            "attribution_verdict_parts_ignored", "Parts of LLM replies that nobody asked for.", registry=registry
        )
        self.llm_calls = Counter(
            "attribution_llm_calls", "LLM calls, by how they ended.", ["provider", "model", "end"], registry=registry
        )
        self.llm_tokens = Counter(
            "attribution_llm_tokens", "LLM tokens, by bucket.", ["provider", "model", "bucket"], registry=registry
        )
        self.llm_cost_usd = Counter(
            "attribution_llm_cost_usd",
            "LLM cost in US dollars, for graphs; the exact one is in llm_calls.",
            ["provider", "model"],
            registry=registry,
        )
        self.llm_calls_unpriced = Counter(
            "attribution_llm_calls_unpriced", "LLM calls of unknown cost.", ["provider", "model"], registry=registry
        )
        self.messages_published = Counter(
            "attribution_messages_published", "Outbox messages acknowledged by the broker.", registry=registry
        )
        self.records_in_flight = Gauge(
            "attribution_records_in_flight", "Records fetched and not yet settled.", registry=registry
        )
        self.settle_seconds = Histogram(
            "attribution_settle_seconds",
            "From a record's start to its outcome.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
            registry=registry,
        )


class Telemetry:
    """Turns what happened into metrics and log lines; never sees payload text."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.metrics = Metrics(self.registry)
        self.outcomes: CounterOf[Outcome] = CounterOf()
        self.outage_waits = 0
        self._unpriced: set[tuple[str, str]] = set()
        self.first_record_started_s: float | None = None
        self.last_record_settled_s: float | None = None

    def record_settled(self, record: Record, processed: Processed, attempts: int, duration_s: float) -> None:
        self.outcomes[processed.outcome] += 1
        self.last_record_settled_s = time.monotonic()
        if self.first_record_started_s is None:
            self.first_record_started_s = self.last_record_settled_s - duration_s
        self.metrics.records.labels(processed.outcome.value).inc()
        self.metrics.settle_seconds.observe(duration_s)
        if not log.is_enabled_for(logging.INFO):
            return
        fields: dict[str, object] = {
            "outcome": processed.outcome.value,
            "duration_ms": round(duration_s * 1000, 3),
            "attempts": attempts,
            **_position(record),
        }
        if processed.answer_key is not None:
            fields |= {"tenant": processed.answer_key.tenant, "answer_id": processed.answer_key.answer_id}
        if processed.attribution is not None:
            usage = processed.attribution.judgement.usage
            fields |= {
                "sources": len(processed.attribution.source_credits),
                "key_points": len(processed.attribution.judgement.key_points),
                "utility_units": processed.attribution.utility_units,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cost_usd": None if usage.cost_usd is None else str(usage.cost_usd),
            }
            self.metrics.unevidenced_supports.inc(len(processed.attribution.judgement.unevidenced))
        log.info("record.settled", **fields)

    def attempt_failed(self, record: Record, attempt: int, problem: str, pause_s: float) -> None:
        self.metrics.attempts_failed.inc()
        log.warning("attempt.failed", attempt=attempt, problem=problem, pause_s=pause_s, **_position(record))

    def outage_waited(self, problem: str, tries: int) -> None:
        self.outage_waits += 1
        self.metrics.outage_waits.inc()
        log.warning("outage.waited", problem=problem, tries=tries)

    def dead_letter_stored(self, record: Record, reason: DeadLetterReason, detail: str) -> None:
        self.metrics.dead_letters.labels(reason.value).inc()
        log.warning("dead_letter.stored", reason=reason.value, detail=detail, **_position(record))

    def event_decoded(self, *, unknown_field_count: int, scrubbed_count: int) -> None:
        if unknown_field_count:
            self.metrics.unknown_fields.inc(unknown_field_count)
        if scrubbed_count:
            self.metrics.scrubbed_characters.inc(scrubbed_count)

    def call_made(self, provider: str, model: str, stage: Stage, completion: Completion, cost: Decimal | None) -> None:
        usage = completion.usage
        self.metrics.llm_calls.labels(provider, model, completion.finish.value).inc()
        for bucket, count in (
            ("input", usage.input_tokens),
            ("cache_read", usage.cache_read_tokens),
            ("cache_write", usage.cache_write_tokens),
            ("output", usage.output_tokens),
            ("reasoning", usage.reasoning_tokens),
        ):
            self.metrics.llm_tokens.labels(provider, model, bucket).inc(count)
        if cost is None:
            self.metrics.llm_calls_unpriced.labels(provider, model).inc()
            if (provider, model) not in self._unpriced:
                self._unpriced.add((provider, model))
                log.warning("call.unpriced", provider=provider, model=model, advice="set ATTRIBUTION_PRICES")
        else:
            self.metrics.llm_cost_usd.labels(provider, model).inc(float(cost))
        log.debug("call.made", provider=provider, model=model, stage=stage.value, finish=completion.finish.value)

    def call_failed(self, provider: str, model: str, problem: CallProblem) -> None:
        self.metrics.llm_calls.labels(provider, model, problem.failure.value).inc()
        log.warning("call.failed", provider=provider, model=model, failure=problem.failure.value, detail=problem.detail)

    def judged(self, *, scrubbed: int, ignored: int) -> None:
        """Replaced characters or boundaries, and unasked parts of replies, of one conversation with an LLM."""
        if scrubbed:
            self.metrics.scrubbed_characters.inc(scrubbed)
        if ignored:
            self.metrics.verdict_parts_ignored.inc(ignored)

    def fell_back(self, problem: str) -> None:
        self.metrics.fallbacks.inc()
        log.warning("judge.fell_back", problem=problem)

    def judgement_reused(self) -> None:
        self.metrics.judgements_reused.inc()

    def limiter_waited_long(self, waited_s: float) -> None:
        log.warning("limiter.waited_long", waited_s=round(waited_s, 1))

    def messages_published(self, message_count: int) -> None:
        self.metrics.messages_published.inc(message_count)


def _position(record: Record) -> dict[str, object]:
    return {"topic": record.topic, "partition": record.partition, "offset": record.offset}
