"""The judge: who it is, how it is asked, how fast, and what it may cost."""

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr

from worker.settings.section import Section


class JudgeName(StrEnum):
    LOCAL = "local"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class JudgeSettings(Section):
    """Which judge fills the support matrix, and how it is asked."""

    name: JudgeName = Field(
        JudgeName.LOCAL, description="local (no key, no network; never for paying anyone), openai or anthropic"
    )
    model: str | None = Field(None, description="of an LLM judge, such as gpt-5-mini or claude-haiku-4-5")
    fallback_name: JudgeName | None = Field(None, description="an LLM judge to ask while the first one is down")
    fallback_model: str | None = Field(None, description="its model; the method of what it judges names it")
    secret: SecretStr | None = Field(
        None, description="16 bytes or more, the same for all workers: no publisher can guess how its text is fenced"
    )
    key_points_max: int = Field(64, ge=1, le=64, description="key points of one answer")
    weighting: str = Field("uniform", pattern="^(uniform|importance)$", description="uniform, or importance (1 to 3)")
    refinement: str = Field(
        "folded", pattern="^(folded|own_call|off)$", description="drop redundant key points: folded, own_call or off"
    )
    scoring_mode: str = Field(
        "answer", pattern="^(answer|source|pair)$", description="what one scoring call scores: answer, source or pair"
    )


class LlmSettings(Section):
    """The attribution LLM: access, deadlines and sizes of a call."""

    openai_api_key: SecretStr | None = Field(None, description="for judge openai")
    openai_base_url: str | None = Field(None, description="another server that speaks OpenAI's API (vLLM, Azure)")
    anthropic_api_key: SecretStr | None = Field(None, description="for judge anthropic")
    anthropic_base_url: str | None = Field(None, description="another server that speaks Anthropic's API")
    call_timeout_s: float = Field(120.0, gt=0, lt=3_600, description="one call, whatever it waits for")
    recording_s: float = Field(
        30.0,
        gt=0,
        le=600,
        description="for the database to take an intent, and again a response; after the death of a worker its calls "
        "in flight are bought again when call_timeout_s and twice this have passed",
    )
    transient_failures_max: int = Field(4, ge=1, description="failures of one call, the provider being up, per attempt")
    input_tokens_max: int = Field(100_000, ge=1_000, description="of one call; sources that do not fit are split")
    output_tokens_max: int = Field(16_000, ge=500, description="of one reply")
    reasoning_tokens_max: int = Field(0, ge=0, description="added to a reply's cap, for models that reason")
    token_margin: float = Field(1.15, ge=1, description="estimates are times this: other tokenizers count more")


class ModelLimits(Section):
    """What one account may use of one model; unset is unlimited, until the provider's own headers name a limit."""

    requests_per_minute: int | None = Field(None, ge=1, description="calls a minute; unset: as the provider says")
    tokens_per_minute: int | None = Field(None, ge=1, description="input and output tokens together, a minute")
    input_tokens_per_minute: int | None = Field(None, ge=1, description="input tokens a minute")
    output_tokens_per_minute: int | None = Field(None, ge=1, description="output tokens a minute")
    calls_in_flight: int = Field(64, ge=1, description="calls to the model at once, in this process")


class LimiterSettings(ModelLimits):
    """How fast the attribution LLM is called; the limits here are of every model that `models` does not name."""

    models: Mapping[str, ModelLimits] = Field(
        {}, description='limits by model, as JSON: {"gpt-5-mini": {"requests_per_minute": 600}}'
    )
    learn_limits: bool = Field(True, description="take over limits that the provider's headers name and we do not")
    burst_s: float = Field(50.0, gt=0, le=60, description="seconds of the limits that may be saved up for a rush")
    initial_burst_s: float = Field(5.0, gt=0, description="seconds of the limits that may be used at once after start")
    unseen_s_max: float = Field(
        10.0, gt=0, description="longest that a call takes to arrive, or goes on at the provider when we hang up"
    )
    wait_max_s: float = Field(600.0, gt=0, description="a call not granted by then waits as in an outage")
    long_wait_s: float = Field(30.0, gt=0, description="a wait this long is logged")
    slowdown: float = Field(0.5, gt=0, lt=1, description="speed after a refusal (429, 529), as a share of before")
    slowdown_floor: float = Field(0.05, gt=0, le=1, description="lowest speed, as a share of the limits")
    recovery_s: float = Field(120.0, gt=0, description="from a standstill back to full speed, in equal steps")
    pause_s: float = Field(1.0, gt=0, description="after a refusal that names no wait; doubles while they go on")
    pause_max_s: float = Field(300.0, gt=0, description="longest pause, whatever Retry-After asks for")
    outage_failures_max: int = Field(5, ge=1, description="failures in a row after which a provider counts as down")
    outage_probe_s: float = Field(15.0, gt=0, description="how often one call looks whether it is up again")

    def of_model(self, model: str) -> ModelLimits:
        """The limits of one model."""
        return self.models.get(model, self)


def _not_a_float(value: object) -> object:
    """JSON's numbers arrive as floats, which hold few prices exactly."""
    if isinstance(value, float):
        raise ValueError('give money as a string, such as "0.25"')  # noqa: TRY004  # pydantic reports ValueErrors only
    return value


Money = Annotated[
    Decimal, BeforeValidator(_not_a_float), Field(ge=0, allow_inf_nan=False, max_digits=20, decimal_places=10)
]


UnitPrice = Annotated[
    Decimal, BeforeValidator(_not_a_float), Field(ge=0, allow_inf_nan=False, max_digits=12, decimal_places=6)
]


class ModelPrices(Section):
    """US dollars per million tokens; reasoning costs what output costs."""

    input: UnitPrice
    output: UnitPrice
    cache_read: UnitPrice
    cache_write: UnitPrice


class BudgetSettings(Section):
    """What the attribution LLM may cost, over all workers, by UTC hour and day; unset is unlimited."""

    total_usd_per_hour: Money | None = Field(None, description="spent: intake pauses until the hour ends")
    total_usd_per_day: Money | None = Field(None, description="spent: intake pauses until the day ends")
    tenant_usd_per_hour: Money | None = Field(
        None, description="of each tenant; spent: its records are set aside, replayably, as budget_exhausted"
    )
    tenant_usd_per_day: Money | None = Field(None, description="of each tenant, as above")
    lease_fraction: Decimal = Field(
        Decimal("0.02"), gt=0, le=1, description="of a budget's rest, what a worker takes at once to spend on its own"
    )


class ReuseSettings(Section):
    """Cached answers are served all day: the judgement of one is copied to the next of the same content, at no cost."""

    enabled: bool = Field(True, description="within a tenant and method, where texts are stored in full")
    age_days_max: int = Field(30, ge=1, description="older judgements are made anew, and their entries dropped")
