"""What a model's API takes, and what a refusal teaches about it."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum


class Capability(StrEnum):
    """Request parameters that some models take and others refuse with a 400."""

    TEMPERATURE = "temperature"
    MAX_COMPLETION_TOKENS = "max_completion_tokens"  # instead of max_tokens
    STRUCTURED_OUTPUT = "structured_output"
    PROMPT_CACHING = "prompt_caching"


@dataclass(frozen=True, slots=True)
class CapabilityProfile:
    """The capabilities assumed of a model until it refuses one."""

    capabilities: frozenset[Capability]

    def has(self, capability: Capability) -> bool:
        return capability in self.capabilities


@dataclass(frozen=True, slots=True)
class Lesson:
    """A capability that a model turned out to have, or not to have."""

    capability: Capability
    has_it: bool

    def applied_to(self, profile: CapabilityProfile) -> CapabilityProfile:
        one = frozenset({self.capability})
        return replace(profile, capabilities=profile.capabilities | one if self.has_it else profile.capabilities - one)


ALL_OPENAI = frozenset({Capability.TEMPERATURE, Capability.MAX_COMPLETION_TOKENS, Capability.STRUCTURED_OUTPUT})
REASONING_MODEL = re.compile(r"o\d|gpt-5")


def openai_profile(model: str, *, official: bool) -> CapabilityProfile:
    """Reasoning models refuse a temperature; compatible servers know `max_tokens` only."""
    capabilities = ALL_OPENAI
    if REASONING_MODEL.match(model):
        capabilities -= {Capability.TEMPERATURE}
    elif not official:
        capabilities -= {Capability.MAX_COMPLETION_TOKENS}
    return CapabilityProfile(capabilities)


def anthropic_profile() -> CapabilityProfile:
    """Messages take no temperature in this SDK; output format and cache control are native."""
    return CapabilityProfile(frozenset({Capability.STRUCTURED_OUTPUT, Capability.PROMPT_CACHING}))


REFUSING = re.compile(
    r"not supported|unsupported|n[o']t support|not permitted|not allowed|unrecognized|unknown|unexpected|forbidden",
    re.IGNORECASE,
)
SCHEMA_AT_FAULT = re.compile(r"invalid[ _](json[ _])?schema|format\.schema", re.IGNORECASE)
USE_INSTEAD = re.compile(r"max_tokens.*max_completion_tokens", re.DOTALL)
NAMED = (
    (re.compile(r"max_completion_tokens"), Capability.MAX_COMPLETION_TOKENS),
    (re.compile(r"temperature"), Capability.TEMPERATURE),
    (re.compile(r"response_format|json_schema|output_config|output_format|structured output", re.IGNORECASE),
     Capability.STRUCTURED_OUTPUT),
    (re.compile(r"cache_control"), Capability.PROMPT_CACHING),
)  # fmt: skip


def lesson_of(profile: CapabilityProfile, refusal: str) -> Lesson | None:
    """What the message of a 400 says about a parameter that a request of this profile sent; None: nothing to learn.

    A parameter must be named *and* refused: a value out of range, or a schema that is wrong, is no lack of the model.
    """
    if not REFUSING.search(refusal) or SCHEMA_AT_FAULT.search(refusal):
        return None
    if USE_INSTEAD.search(refusal) and not profile.has(Capability.MAX_COMPLETION_TOKENS):
        return Lesson(Capability.MAX_COMPLETION_TOKENS, has_it=True)
    for name, capability in NAMED:
        if name.search(refusal) and profile.has(capability):
            return Lesson(capability, has_it=False)
    return None
