"""The metric list, the instruments made from it, and the canonical line of a record."""

import json
import logging
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
import structlog

from schemas.dead_letter import DeadLetterReason
from tests.support import samples
from tests.support.attributions import attribution_of
from worker.core.calls import CallFailure, CallProblem
from worker.core.llm import Completion, CompletionUsage, Finish, Stage
from worker.core.outcome import Outcome, Processed
from worker.telemetry import METRICS, LineStage, Metric, Reading, Telemetry, one_hot
from worker.telemetry.metric_list import Kind, Label, Source, Spec, Unit
from worker.telemetry.metric_page import metric_page
from worker.telemetry.telemetry import canonical_fields

RECORD = samples.record()
COMPLETION = Completion(Finish.COMPLETE, "{}", CompletionUsage(100, 20, 300, 40, 5), raw="{}")


def value_of(telemetry: Telemetry, series: str, **labels: str) -> float | None:
    return telemetry.registry.get_sample_value(series, labels)


@pytest.mark.parametrize("spec", METRICS, ids=lambda spec: spec.name)
def test_every_metric_says_what_it_is(spec: Spec) -> None:
    assert re.fullmatch(r"attribution_[a-z]+(_[a-z]+)*", spec.name)
    assert spec.help.endswith(".")
    if spec.unit in {Unit.SECONDS, Unit.BYTES, Unit.RATIO, Unit.USD}:
        assert spec.name.endswith(f"_{spec.unit.value}"), "the unit is the name's end"
    assert not spec.name.endswith(("_total", "_count", "_sum", "_bucket", "_info", "_created")), "Prometheus adds these"
    assert bool(spec.buckets) == (spec.kind is Kind.HISTOGRAM)
    assert list(spec.buckets) == sorted(set(spec.buckets))


@pytest.mark.parametrize("label", [label for spec in METRICS for label in spec.labels], ids=lambda label: label.name)
def test_every_label_has_bounded_values(label: Label) -> None:
    assert bool(label.values) != bool(label.bounded_by), "a closed list, or the reason why there are few"
    assert len(label.values) == len(set(label.values))


def test_names_are_unique_down_to_the_series() -> None:
    series = [name for spec in METRICS for name in spec.series]
    assert len(series) == len(set(series))
    assert len(set(METRICS)) == len(Metric), "no two members of the list are one"


def test_what_is_exposed_is_the_list_and_nothing_else() -> None:
    telemetry = Telemetry()
    telemetry.limiter_waited("openai", "gpt", 0.1)
    counted = {spec.name: spec for spec in METRICS if spec.source is Source.EVENTS}
    exposed = {family.name: family for family in telemetry.registry.collect()}
    assert exposed.keys() == counted.keys()
    for name, family in exposed.items():
        assert (family.type, family.documentation) == (counted[name].kind.value, counted[name].help)


def test_a_counter_is_there_before_its_first_event_so_that_alerts_see_it_rise() -> None:
    telemetry = Telemetry()
    for outcome in Outcome:
        assert value_of(telemetry, "attribution_records_total", outcome=outcome.value) == 0
    for reason in DeadLetterReason:
        assert value_of(telemetry, "attribution_dead_letters_total", reason=reason.value) == 0
    for stage in LineStage:
        assert value_of(telemetry, "attribution_stage_seconds_count", stage=stage.value) == 0


def test_a_settled_record_is_counted_and_timed() -> None:
    telemetry = Telemetry()
    telemetry.record_settled(RECORD, Processed(Outcome.SKIPPED), 1, 0.02)
    assert value_of(telemetry, "attribution_records_total", outcome="skipped") == 1
    assert value_of(telemetry, "attribution_settle_seconds_sum") == pytest.approx(0.02)
    assert telemetry.outcomes == {Outcome.SKIPPED: 1}


def test_what_a_call_used_is_counted_by_bucket() -> None:
    telemetry = Telemetry()
    telemetry.call_made("openai", "gpt", Stage.SCORE, COMPLETION, Decimal("0.25"))
    telemetry.call_made("openai", "gpt", Stage.SCORE, COMPLETION, None)
    telemetry.call_failed("openai", "gpt", CallProblem(CallFailure.THROTTLED, "slow down", 429))
    at = {"provider": "openai", "model": "gpt"}
    tokens = {
        bucket: value_of(telemetry, "attribution_llm_tokens_total", bucket=bucket, **at)
        for bucket in ("input", "cache_read", "cache_write", "output", "reasoning")
    }
    assert tokens == {"input": 200, "cache_read": 600, "cache_write": 80, "output": 40, "reasoning": 10}
    assert value_of(telemetry, "attribution_llm_calls_total", end="complete", **at) == 2
    assert value_of(telemetry, "attribution_llm_calls_total", end="throttled", **at) == 1
    assert value_of(telemetry, "attribution_llm_cost_usd_total", **at) == 0.25
    assert value_of(telemetry, "attribution_llm_calls_unpriced_total", **at) == 1


@pytest.mark.parametrize("end", [*Finish, *CallFailure])
def test_every_way_that_a_call_ends_has_its_counter(end: Finish | CallFailure) -> None:
    telemetry = Telemetry()
    if isinstance(end, Finish):
        telemetry.call_made("openai", "gpt", Stage.SCORE, replace(COMPLETION, finish=end), Decimal(0))
    else:
        telemetry.call_failed("openai", "gpt", CallProblem(end, "detail"))
    labels = {"provider": "openai", "model": "gpt", "end": end.value}
    assert value_of(telemetry, "attribution_llm_calls_total", **labels) == 1


def test_what_is_read_is_read_at_each_scrape() -> None:
    telemetry = Telemetry()
    held = [3]
    telemetry.scraped.add(lambda: [Reading(Metric.IN_FLIGHT_RECORDS, held[0], ("running",))])
    assert value_of(telemetry, "attribution_in_flight_records", phase="running") == 3
    held[0] = 4
    assert value_of(telemetry, "attribution_in_flight_records", phase="running") == 4


def test_what_is_counted_cannot_be_read_as_well() -> None:
    telemetry = Telemetry()
    telemetry.scraped.add(lambda: [Reading(Metric.RECORDS, 1, ("skipped",))])
    with pytest.raises(ValueError, match="attribution_records is counted"):
        list(telemetry.registry.collect())


def test_a_state_is_one_of_its_values_at_a_time() -> None:
    readings = list(one_hot(Metric.BREAKER_STATE, "open", "openai", "gpt"))
    assert [reading.labels[-1] for reading in readings if reading.value == 1] == ["open"]
    assert len(readings) == 3


def test_a_record_has_one_canonical_line_with_facts_and_no_payload() -> None:
    settled = attribution_of(samples.answer("a-1", text="A secret answer."))
    line = canonical_fields(RECORD, Processed(Outcome.ATTRIBUTED, settled.answer.key, settled), 2, 0.0123456)
    assert line == {
        "outcome": "attributed",
        "duration_ms": 12.346,
        "attempts": 2,
        "topic": RECORD.topic,
        "partition": RECORD.partition,
        "offset": RECORD.offset,
        "tenant": "default",
        "answer_id": "a-1",
        "sources": len(settled.source_credits),
        "key_points": len(settled.judgement.key_points),
        "utility_units": settled.utility_units,
        "reused": False,
        "calls": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        "cost_usd": "0",
    }
    told = json.dumps(line)
    texts = [settled.answer.text, settled.answer.query, *(source.text for source in settled.answer.sources)]
    assert not [text for text in texts if text in told]


def test_unevidenced_supports_are_counted_whether_or_not_lines_are_logged() -> None:
    settled = attribution_of(samples.answer())
    settled = replace(settled, judgement=replace(settled.judgement, unevidenced={(0, 1): 400, (0, 2): 300}))
    telemetry = Telemetry()
    assert not structlog.get_logger("worker").is_enabled_for(logging.INFO), "tests log warnings only"
    telemetry.record_settled(RECORD, Processed(Outcome.ATTRIBUTED, settled.answer.key, settled), 1, 0.01)
    assert value_of(telemetry, "attribution_unevidenced_supports_total") == 2


def test_the_page_for_people_is_what_the_list_says() -> None:
    page = Path(__file__).parents[2] / "docs/metrics.md"
    assert page.read_text(encoding="utf-8") == metric_page(), (
        "run python -m worker.telemetry.metric_page > docs/metrics.md"
    )
