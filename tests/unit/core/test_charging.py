from dataclasses import replace

import pytest

from worker.core.charging import ANTHROPIC_CHARGING, OPENAI_CHARGING, Charge, ChargingRule, Dimension, Estimate
from worker.core.llm import CompletionUsage

ESTIMATE = Estimate(input_tokens=1_000, output_tokens_max=300)
USAGE = CompletionUsage(
    input_tokens=500, cache_read_tokens=300, cache_write_tokens=200, output_tokens=40, reasoning_tokens=60
)
REFUNDED = ChargingRule(Charge.CAP_REFUNDED, cache_reads_charged=True)


def each(requests: int, tokens: int, input_tokens: int, output_tokens: int) -> dict[Dimension, int]:
    return dict(zip(Dimension, (requests, tokens, input_tokens, output_tokens), strict=True))


@pytest.mark.parametrize("rule", [OPENAI_CHARGING, ANTHROPIC_CHARGING, REFUNDED], ids=lambda rule: rule.charge.value)
def test_every_rule_reserves_as_much_as_it_can_charge(rule: ChargingRule) -> None:
    reserved = {name: reservation.tokens for name, reservation in rule.reserve(ESTIMATE).items()}
    assert reserved == each(1, 1_300, 1_000, 300)


def test_openai_charges_the_cap_for_good_when_the_call_arrives() -> None:
    reserved = OPENAI_CHARGING.reserve(ESTIMATE)
    on_arrival = {name: reservation.on_arrival for name, reservation in reserved.items()}
    assert on_arrival == each(1, 1_300, 1_000, 300)
    assert OPENAI_CHARGING.needed_at_admission(ESTIMATE) == each(1, 1_300, 1_000, 300)


@pytest.mark.parametrize("rule", [ANTHROPIC_CHARGING, REFUNDED], ids=lambda rule: rule.charge.value)
def test_where_unused_tokens_are_not_charged_they_are_only_held(rule: ChargingRule) -> None:
    held = {name: reservation.open for name, reservation in rule.reserve(ESTIMATE).items()}
    assert held == each(0, 1_300, 1_000, 300)


def test_anthropic_does_not_look_at_the_cap() -> None:
    assert ANTHROPIC_CHARGING.needed_at_admission(ESTIMATE) == each(1, 1_000, 1_000, 0)


@pytest.mark.parametrize("rule", [OPENAI_CHARGING, REFUNDED], ids=lambda rule: rule.charge.value)
def test_an_expectation_counts_for_nothing_where_the_cap_is_charged(rule: ChargingRule) -> None:
    assert rule.reserve(replace(ESTIMATE, output_tokens_expected=50)) == rule.reserve(ESTIMATE)


@pytest.mark.parametrize(("expected", "reserved"), [(50, 50), (301, 300), (None, 300)])
def test_what_is_expected_is_reserved_where_the_cap_costs_nothing(expected: int | None, reserved: int) -> None:
    estimate = replace(ESTIMATE, output_tokens_expected=expected)
    assert ANTHROPIC_CHARGING.reserve(estimate)[Dimension.OUTPUT_TOKENS].tokens == reserved


def test_cached_reads_are_charged_where_the_provider_charges_them_and_reasoning_is_output() -> None:
    assert OPENAI_CHARGING.used(USAGE) == each(1, 1_100, 1_000, 100)
    assert ANTHROPIC_CHARGING.used(USAGE) == each(1, 800, 700, 100)
