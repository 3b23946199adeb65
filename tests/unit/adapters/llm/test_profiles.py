"""What is learnt from a 400, in the words of real servers, and what is not."""

import pytest

from worker.adapters.llm.profiles import (
    ALL_OPENAI,
    Capability,
    CapabilityProfile,
    Lesson,
    anthropic_profile,
    lesson_of,
    openai_profile,
)

EVERYTHING = CapabilityProfile(frozenset(Capability))
WITHOUT_MAX_COMPLETION_TOKENS = CapabilityProfile(ALL_OPENAI - {Capability.MAX_COMPLETION_TOKENS})

OPENAI_TEMPERATURE = (
    "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported."
)
OPENAI_MAX_TOKENS = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
)
OPENAI_UNRECOGNIZED = "Unrecognized request argument supplied: max_completion_tokens"
OPENAI_SCHEMA = "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."
VLLM_EXTRA = (
    "[{'type': 'extra_forbidden', 'loc': ('body', 'max_completion_tokens'), 'msg': 'Extra inputs are not permitted', "
    "'input': 500}]"
)
ANTHROPIC_FORMAT = "output_config.format: 'claude-x' does not support output format."
ANTHROPIC_EXTRA = "output_config: Extra inputs are not permitted"
ANTHROPIC_CACHE = "system.0.cache_control: Extra inputs are not permitted"


@pytest.mark.parametrize(
    ("message", "lacking"),
    [
        (OPENAI_TEMPERATURE, Capability.TEMPERATURE),
        (OPENAI_UNRECOGNIZED, Capability.MAX_COMPLETION_TOKENS),
        (VLLM_EXTRA, Capability.MAX_COMPLETION_TOKENS),
        (OPENAI_SCHEMA, Capability.STRUCTURED_OUTPUT),
        (ANTHROPIC_FORMAT, Capability.STRUCTURED_OUTPUT),
        (ANTHROPIC_EXTRA, Capability.STRUCTURED_OUTPUT),
        (ANTHROPIC_CACHE, Capability.PROMPT_CACHING),
    ],
)
def test_a_parameter_that_is_named_and_refused_is_lacking(message: str, lacking: Capability) -> None:
    lesson = lesson_of(EVERYTHING, message)
    assert lesson == Lesson(lacking, has_it=False)
    assert not lesson.applied_to(EVERYTHING).has(lacking)


def test_a_model_that_wants_the_other_cap_gets_it() -> None:
    lesson = lesson_of(WITHOUT_MAX_COMPLETION_TOKENS, OPENAI_MAX_TOKENS)
    assert lesson == Lesson(Capability.MAX_COMPLETION_TOKENS, has_it=True)
    assert lesson.applied_to(WITHOUT_MAX_COMPLETION_TOKENS).has(Capability.MAX_COMPLETION_TOKENS)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "max_tokens is too large: 500000. This model supports at most 16384 completion tokens.",
        "Invalid schema for response_format 'x': In context=(), 'minimum' is not permitted.",
        "output_config.format.schema: For 'number' type, properties maximum, minimum are not supported",
        "Invalid value: temperature must be between 0 and 2.",
        "Unsupported value: 'top_k' is not supported.",
    ],
)
def test_a_value_or_a_schema_that_is_wrong_is_no_lack_of_the_model(message: str) -> None:
    assert lesson_of(EVERYTHING, message) is None


def test_what_was_not_sent_cannot_be_left_out() -> None:
    assert lesson_of(CapabilityProfile(frozenset()), OPENAI_TEMPERATURE) is None
    assert lesson_of(EVERYTHING, OPENAI_MAX_TOKENS) == Lesson(Capability.MAX_COMPLETION_TOKENS, has_it=False)


@pytest.mark.parametrize("model", ["o1", "o3-mini", "o4-mini", "gpt-5", "gpt-5-mini", "gpt-5.2"])
@pytest.mark.parametrize("official", [True, False])
def test_models_that_reason_are_asked_without_temperature_wherever_they_run(model: str, official: bool) -> None:
    profile = openai_profile(model, official=official)
    assert not profile.has(Capability.TEMPERATURE)
    assert profile.has(Capability.MAX_COMPLETION_TOKENS)


def test_compatible_servers_are_asked_in_the_older_word() -> None:
    assert openai_profile("gpt-4.1", official=True).has(Capability.MAX_COMPLETION_TOKENS)
    assert not openai_profile("llama-3.3-70b", official=False).has(Capability.MAX_COMPLETION_TOKENS)


def test_anthropic_gets_no_temperature() -> None:
    assert not anthropic_profile().has(Capability.TEMPERATURE)
