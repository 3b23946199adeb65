"""What a model's API takes, and what this process has learnt that it does not."""

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

    def without(self, capability: Capability) -> "CapabilityProfile":
        return replace(self, capabilities=self.capabilities - {capability})

    def with_added(self, capability: Capability) -> "CapabilityProfile":
        return replace(self, capabilities=self.capabilities | {capability})


ALL_OPENAI = frozenset({Capability.TEMPERATURE, Capability.MAX_COMPLETION_TOKENS, Capability.STRUCTURED_OUTPUT})
REASONING_MODEL = re.compile(r"^(o\d|gpt-5)")


def openai_profile(model: str, *, official: bool) -> CapabilityProfile:
    """Reasoning models refuse a temperature; compatible servers know `max_tokens` only."""
    capabilities = ALL_OPENAI
    if REASONING_MODEL.match(model):
        capabilities -= {Capability.TEMPERATURE}
    if not official:
        capabilities -= {Capability.MAX_COMPLETION_TOKENS}
    return CapabilityProfile(capabilities)


def anthropic_profile() -> CapabilityProfile:
    """Messages take no temperature in this SDK; output format and cache control are native."""
    return CapabilityProfile(frozenset({Capability.STRUCTURED_OUTPUT, Capability.PROMPT_CACHING}))


REFUSALS: tuple[tuple[re.Pattern[str], Capability, bool], ...] = (
    # (what a 400 says, the capability it speaks of, whether to gain it instead of losing it)
    (
        re.compile(r"max_tokens.*(not supported|unsupported).*max_completion_tokens", re.DOTALL),
        Capability.MAX_COMPLETION_TOKENS,
        True,
    ),
    (re.compile(r"max_completion_tokens"), Capability.MAX_COMPLETION_TOKENS, False),
    (re.compile(r"temperature"), Capability.TEMPERATURE, False),
    (
        re.compile(r"response_format|json_schema|output_config|output_format|structured output", re.IGNORECASE),
        Capability.STRUCTURED_OUTPUT,
        False,
    ),
    (re.compile(r"cache_control"), Capability.PROMPT_CACHING, False),
)


def downgraded(profile: CapabilityProfile, refusal: str) -> CapabilityProfile | None:
    """The profile after what a 400 says, or None when the refusal names nothing that we could leave out."""
    for pattern, capability, gain in REFUSALS:
        if pattern.search(refusal) and profile.has(capability) != gain:
            return profile.with_added(capability) if gain else profile.without(capability)
    return None
