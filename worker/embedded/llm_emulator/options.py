"""How an emulator behaves."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from worker.embedded.llm_emulator.chances import Fixed, Spread
from worker.embedded.llm_emulator.fault_plan import FaultPlan
from worker.embedded.llm_emulator.judgements import Opinion, local_opinion
from worker.embedded.llm_emulator.model_rules import ModelRules
from worker.embedded.llm_emulator.rate_limits import RateLimits
from worker.embedded.llm_emulator.tokens import O200k, Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorOptions:
    """All seconds and minutes are the emulator's own: `time_scale` of them pass in a real one.

    `latency_s` is how long a call is worked on, to which each output token adds `output_token_s`; `slow_body_s` how
    long a slow body drips. `opinion` is what the model thinks. `models` are rules of models by name, before those of
    real ones. `requests_kept` of the last requests can be looked at.
    """

    seed: int = 0
    latency_s: Spread = field(default_factory=Fixed)
    output_token_s: float = 0.0
    slow_body_s: float = 1.0
    reasoning_tokens: Spread = field(default_factory=Fixed)
    limits: RateLimits = field(default_factory=RateLimits)
    time_scale: float = 1.0
    faults: FaultPlan = field(default_factory=FaultPlan)
    opinion: Opinion = local_opinion
    tokenizer: Tokenizer = field(default_factory=O200k)
    models: Mapping[str, ModelRules] = field(default_factory=dict)
    requests_kept: int = 1_000
