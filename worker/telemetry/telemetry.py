"""Turns what happened into metrics, spans and log lines; never sees payload text."""

import logging
import time
from collections import Counter as CounterOf
from decimal import Decimal

from prometheus_client import CollectorRegistry, Histogram

from schemas.dead_letter import DeadLetterReason
from worker.core.calls import CallProblem
from worker.core.llm import Completion, Stage
from worker.core.model import Attribution
from worker.core.outcome import Outcome, Processed
from worker.core.records import Record
from worker.telemetry.instruments import (
    LlmInstruments,
    Scraped,
    counter,
    counters_by_value,
    histogram,
    histograms_by_value,
)
from worker.telemetry.logs import log
from worker.telemetry.metric_list import LineStage, Metric, TokenBucket
from worker.telemetry.tracing import Tracing


class Stopwatch:
    """Times the steps of one record, each from the end of the one before."""

    __slots__ = ("_seconds", "_since_s")

    def __init__(self, seconds: dict[LineStage, Histogram]) -> None:
        self._seconds = seconds
        self._since_s = time.perf_counter()

    def lap(self, stage: LineStage) -> None:
        now_s = time.perf_counter()
        self._seconds[stage].observe(now_s - self._since_s)
        self._since_s = now_s


class Telemetry:
    """One per worker, with a registry of its own, so that two in one process do not collide."""

    def __init__(self, registry: CollectorRegistry | None = None, tracing: Tracing | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.tracing = tracing or Tracing()
        self.scraped = Scraped(self.registry)
        self.outcomes: CounterOf[Outcome] = CounterOf()
        self.outage_waits = 0
        self.first_record_started_s: float | None = None
        self.last_record_settled_s: float | None = None
        self._unpriced: set[tuple[str, str]] = set()
        self._bind_record_metrics(self.registry)
        self._bind_content_metrics(self.registry)
        self._llm = LlmInstruments(self.registry)
        self._messages_published = counter(Metric.MESSAGES_PUBLISHED, self.registry)

    def _bind_record_metrics(self, registry: CollectorRegistry) -> None:
        self._records = counters_by_value(Metric.RECORDS, registry)
        self._settle_seconds = histogram(Metric.SETTLE, registry)
        by_value = histograms_by_value(Metric.STAGE, registry)
        self._stage_seconds = {stage: by_value[stage.value] for stage in LineStage}
        self._attempts_failed = counter(Metric.ATTEMPTS_FAILED, registry)
        self._outage_waits = counter(Metric.OUTAGE_WAITS, registry)
        self._dead_letters = counters_by_value(Metric.DEAD_LETTERS, registry)

    def _bind_content_metrics(self, registry: CollectorRegistry) -> None:
        self._unknown_fields = counter(Metric.UNKNOWN_FIELDS, registry)
        self._scrubbed = counter(Metric.SCRUBBED, registry)
        self._unevidenced = counter(Metric.UNEVIDENCED, registry)
        self._verdict_parts_ignored = counter(Metric.VERDICT_PARTS_IGNORED, registry)
        self._judgements_reused = counter(Metric.JUDGEMENTS_REUSED, registry)
        self._fallbacks = counter(Metric.FALLBACKS, registry)

    # Records

    def stopwatch(self) -> Stopwatch:
        return Stopwatch(self._stage_seconds)

    def record_settled(self, record: Record, processed: Processed, attempts: int, duration_s: float) -> None:
        """The canonical line of a record; to be called within its span."""
        outcome = processed.outcome
        self.outcomes[outcome] += 1
        self.last_record_settled_s = time.monotonic()
        if self.first_record_started_s is None:
            self.first_record_started_s = self.last_record_settled_s - duration_s
        self._records[outcome].inc()
        self._settle_seconds.observe(duration_s)
        if processed.attribution is not None and processed.attribution.judgement.unevidenced:
            self._unevidenced.inc(len(processed.attribution.judgement.unevidenced))
        self.tracing.tell(outcome=outcome.value, attempts=attempts)
        if not log.is_enabled_for(logging.INFO):
            return
        fields = canonical_fields(record, processed, attempts, duration_s)
        trace_id = self.tracing.trace_id()
        log.info("record.settled", **fields, **({} if trace_id is None else {"trace_id": trace_id}))

    def attempt_failed(self, record: Record, attempt: int, problem: str, pause_s: float) -> None:
        self._attempts_failed.inc()
        log.warning("attempt.failed", attempt=attempt, problem=problem, pause_s=pause_s, **_position(record))

    def outage_waited(self, problem: str, tries: int) -> None:
        self.outage_waits += 1
        self._outage_waits.inc()
        log.warning("outage.waited", problem=problem, tries=tries)

    def dead_letter_stored(self, record: Record, reason: DeadLetterReason, detail: str) -> None:
        self._dead_letters[reason].inc()
        self.tracing.tell(dead_letter_reason=reason.value)
        log.warning("dead_letter.stored", reason=reason.value, detail=detail, **_position(record))

    def event_decoded(self, *, unknown_field_count: int, scrubbed_count: int) -> None:
        if unknown_field_count:
            self._unknown_fields.inc(unknown_field_count)
        if scrubbed_count:
            self._scrubbed.inc(scrubbed_count)

    # The attribution LLM

    def limiter_waited(self, provider: str, model: str, waited_s: float) -> None:
        self._llm.of(provider, model).wait_seconds.observe(waited_s)

    def limiter_waited_long(self, waited_s: float) -> None:
        log.warning("limiter.waited_long", waited_s=round(waited_s, 1))

    def call_answered(self, provider: str, model: str, duration_s: float) -> None:
        self._llm.of(provider, model).seconds.observe(duration_s)

    def call_made(self, provider: str, model: str, stage: Stage, completion: Completion, cost: Decimal | None) -> None:
        usage = completion.usage
        metrics = self._llm.of(provider, model)
        metrics.calls[completion.finish].inc()
        metrics.tokens[TokenBucket.INPUT].inc(usage.input_tokens)
        metrics.tokens[TokenBucket.CACHE_READ].inc(usage.cache_read_tokens)
        metrics.tokens[TokenBucket.CACHE_WRITE].inc(usage.cache_write_tokens)
        metrics.tokens[TokenBucket.OUTPUT].inc(usage.output_tokens)
        metrics.tokens[TokenBucket.REASONING].inc(usage.reasoning_tokens)
        if cost is None:
            metrics.unpriced.inc()
            if (provider, model) not in self._unpriced:
                self._unpriced.add((provider, model))
                log.warning("call.unpriced", provider=provider, model=model, advice="set ATTRIBUTION_PRICES")
        else:
            metrics.cost_usd.inc(float(cost))
        self.tracing.call_made(completion)
        log.debug("call.made", provider=provider, model=model, stage=stage.value, finish=completion.finish.value)

    def call_failed(self, provider: str, model: str, problem: CallProblem) -> None:
        self._llm.of(provider, model).calls[problem.failure].inc()
        self.tracing.call_failed(problem)
        log.warning("call.failed", provider=provider, model=model, failure=problem.failure.value, detail=problem.detail)

    def judged(self, *, scrubbed: int, ignored: int) -> None:
        """Replaced characters or boundaries, and unasked parts of replies, of one conversation with an LLM."""
        if scrubbed:
            self._scrubbed.inc(scrubbed)
        if ignored:
            self._verdict_parts_ignored.inc(ignored)

    def fell_back(self, problem: str) -> None:
        self._fallbacks.inc()
        log.warning("judge.fell_back", problem=problem)

    def judgement_reused(self) -> None:
        self._judgements_reused.inc()

    # The outbox

    def messages_published(self, message_count: int) -> None:
        self._messages_published.inc(message_count)


def canonical_fields(record: Record, processed: Processed, attempts: int, duration_s: float) -> dict[str, object]:
    """What the one line of a record says."""
    fields = {
        "outcome": processed.outcome.value,
        "duration_ms": round(duration_s * 1000, 3),
        "attempts": attempts,
        **_position(record),
    }
    if processed.answer_key is not None:
        fields |= {"tenant": processed.answer_key.tenant, "answer_id": processed.answer_key.answer_id}
    if processed.attribution is not None:
        fields |= _result(processed.attribution)
    return fields


def _position(record: Record) -> dict[str, object]:
    return {"topic": record.topic, "partition": record.partition, "offset": record.offset}


def _result(attribution: Attribution) -> dict[str, object]:
    judgement = attribution.judgement
    usage = judgement.usage
    return {
        "sources": len(attribution.source_credits),
        "key_points": len(judgement.key_points),
        "utility_units": attribution.utility_units,
        "reused": judgement.reused_from is not None,
        "calls": usage.calls,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": None if usage.cost_usd is None else str(usage.cost_usd),
    }
