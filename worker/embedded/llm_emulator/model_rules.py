"""What each model takes: real ones by their names, and any that a test makes up."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRules:
    """Parameters that a model takes, and its sizes in tokens. `always_reasons`: no temperature, no `max_tokens`."""

    exists: bool = True
    always_reasons: bool = False
    takes_max_completion_tokens: bool = True
    takes_structured_output: bool = True
    takes_cache_control: bool = True
    output_tokens_max: int = 32_768
    context_tokens_max: int = 1_000_000


REASONING: Final = ModelRules(always_reasons=True, output_tokens_max=128_000, context_tokens_max=400_000)
OLD_OPENAI: Final = ModelRules(takes_structured_output=False, output_tokens_max=4_096, context_tokens_max=16_385)
OLD_ANTHROPIC: Final = ModelRules(takes_structured_output=False, output_tokens_max=8_192, context_tokens_max=200_000)
ANTHROPIC: Final = ModelRules(output_tokens_max=64_000, context_tokens_max=200_000)
COMPATIBLE: Final = ModelRules(takes_max_completion_tokens=False, context_tokens_max=131_072)

RULES: Final = (
    (re.compile(r"o\d|gpt-5"), REASONING),
    (re.compile(r"gpt-3\.5|gpt-4(-|$)"), OLD_OPENAI),
    (re.compile(r"claude-(2|3|instant)"), OLD_ANTHROPIC),
    (re.compile(r"claude"), ANTHROPIC),
    (re.compile(r"llama|qwen|mistral"), COMPATIBLE),
    (re.compile(r"no-such-model"), replace(ModelRules(), exists=False)),
)
"""The first that the name begins with; any other name is a model that takes everything."""


def rules_of(model: str, own: Mapping[str, ModelRules]) -> ModelRules:
    """`own` rules, by the whole name, come before those of real models."""
    if model in own:
        return own[model]
    return next((rules for name, rules in RULES if name.match(model)), ModelRules())
