"""The configured judge, with everything it needs around it."""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from pydantic import SecretStr

from worker.adapters.local_judge import LocalJudge
from worker.adapters.prices import ListedPrices, refuse_unpriced_budgets
from worker.adapters.unstored import UnboundedBudgets, UnstoredJournal
from worker.app.readings import read_limiter
from worker.calls import Calls
from worker.core.asking import JudgingMethod, ModelLimits
from worker.core.breaker import CircuitBreaker
from worker.core.buckets import SECOND_NS
from worker.core.budget import Limits
from worker.core.charging import ANTHROPIC_CHARGING, OPENAI_CHARGING
from worker.core.fencing import SECRET_BYTES_MIN
from worker.core.prompts import Refinement, ScoringMode, Weighting
from worker.fallback import FallbackJudge
from worker.limiter import Limiter, LoopClock
from worker.llm_judge import LlmJudge
from worker.llm_ports import Budgets, CallJournal
from worker.ports import Judge
from worker.settings import ConfigurationError, JudgeName, Settings
from worker.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Accounts:
    """Where an LLM judge's calls are recorded and its money is bounded."""

    journal: CallJournal
    budgets: Budgets
    durable: bool


@dataclass(frozen=True, slots=True)
class Around:
    """What the judges of one process share."""

    secret: bytes
    telemetry: Telemetry
    accounts: Accounts


def unstored_accounts() -> Accounts:
    """For judging without a database: calls are remembered by this process alone, and nothing bounds their cost."""
    return Accounts(UnstoredJournal(), UnboundedBudgets(), durable=False)


@asynccontextmanager
async def open_judge(settings: Settings, telemetry: Telemetry, accounts: Accounts) -> AsyncIterator[Judge]:
    """The configured judge; its connections end with the context.

    Raises:
        ConfigurationError: a setting that the judge needs is missing.
    """
    judge = settings.judge
    if judge.name is JudgeName.LOCAL:
        yield LocalJudge(judge.key_points_max)
        return
    async with AsyncExitStack() as stack:
        around = Around(secret=_secret(settings, accounts), telemetry=telemetry, accounts=accounts)
        model = _required(judge.model, judge.name, "JUDGE__MODEL, or --model")
        first: Judge = await stack.enter_async_context(_open_llm_judge(settings, judge.name, model, around))
        if judge.fallback_name is not None:
            model = _required(judge.fallback_model, judge.fallback_name, "JUDGE__FALLBACK_MODEL")
            second = await stack.enter_async_context(_open_llm_judge(settings, judge.fallback_name, model, around))
            first = FallbackJudge(first, second, telemetry)
        yield first


@asynccontextmanager
async def _open_llm_judge(
    settings: Settings,
    name: JudgeName,
    model: str,
    around: Around,
) -> AsyncIterator[LlmJudge]:
    # Here and not above: the SDKs take seconds of processor time to import, which only an LLM judge is to wait for.
    from worker.adapters.llm.open_provider import open_provider  # noqa: PLC0415
    from worker.adapters.llm.tokens import count_tokens  # noqa: PLC0415

    prices = ListedPrices(settings.prices)
    _refuse_unpriced(settings, prices, name, model)
    api_key, base_url = _access(settings, name)
    in_flight = settings.limiter.of_model(model).calls_in_flight
    async with open_provider(name.value, model, api_key, base_url, in_flight) as provider:
        method = JudgingMethod(
            weighting=Weighting(settings.judge.weighting),
            refinement=Refinement(settings.judge.refinement),
            scoring_mode=ScoringMode(settings.judge.scoring_mode),
            key_points_max=settings.judge.key_points_max,
        )
        calls = Calls(
            provider=provider,
            limiter=_limiter(settings, name, model, around.telemetry),
            journal=around.accounts.journal,
            budgets=around.accounts.budgets,
            prices=prices,
            settings=settings.llm.model_copy(update={"token_margin": _token_margin(settings, name)}),
            count_tokens=count_tokens,
            telemetry=around.telemetry,
        )
        yield LlmJudge(
            provider=provider,
            calls=calls,
            journal=around.accounts.journal,
            method=method,
            limits=_model_limits(settings, name),
            secret=around.secret,
            attempts_max=settings.settle.attempts_max,
            count_tokens=count_tokens,
            telemetry=around.telemetry,
        )


def _required(model: str | None, name: JudgeName, setting: str) -> str:
    if name is JudgeName.LOCAL:
        raise ConfigurationError("the fallback must be an LLM judge: set ATTRIBUTION_JUDGE__FALLBACK_NAME")
    if model is None:
        raise ConfigurationError(f"judge {name.value} needs a model: set ATTRIBUTION_{setting}")
    return model


def _limiter(settings: Settings, name: JudgeName, model: str, telemetry: Telemetry) -> Limiter:
    limiter = settings.limiter
    clock = LoopClock()
    # Of this model alone: a fallback to another model of the same provider is meant for when this one is overloaded.
    breaker = CircuitBreaker(
        failures_max=limiter.outage_failures_max, open_ns=round(limiter.outage_probe_s * SECOND_NS)
    )
    made = Limiter(
        model=model,
        settings=limiter,
        rule=OPENAI_CHARGING if name is JudgeName.OPENAI else ANTHROPIC_CHARGING,
        breaker=breaker,
        clock=clock,
        on_long_wait=telemetry.limiter_waited_long,
    )
    telemetry.scraped.add(partial(read_limiter, name.value, model, made))
    return made


def _token_margin(settings: Settings, name: JudgeName) -> float:
    """None for OpenAI's own models, which count as we do: it would leave as much of their limits unused."""
    llm = settings.llm
    return 1.0 if name is JudgeName.OPENAI and llm.openai_base_url is None else llm.token_margin


def _model_limits(settings: Settings, name: JudgeName) -> ModelLimits:
    """In o200k tokens: a margin is left for models that count more of them."""
    llm = settings.llm
    return ModelLimits(
        input_tokens_max=int(llm.input_tokens_max / _token_margin(settings, name)),
        output_tokens_max=llm.output_tokens_max,
        reasoning_tokens_max=llm.reasoning_tokens_max,
    )


def _secret(settings: Settings, accounts: Accounts) -> bytes:
    given = settings.judge.secret
    if given is None:
        if accounts.durable:
            raise ConfigurationError(
                "an LLM judge needs ATTRIBUTION_JUDGE__SECRET: 16 bytes or more, the same for all workers"
            )
        return secrets.token_bytes(SECRET_BYTES_MIN)
    secret = given.get_secret_value().encode()
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigurationError(f"ATTRIBUTION_JUDGE__SECRET needs at least {SECRET_BYTES_MIN} bytes")
    return secret


def _access(settings: Settings, name: JudgeName) -> tuple[SecretStr, str | None]:
    llm = settings.llm
    if name is JudgeName.OPENAI:
        api_key, base_url = llm.openai_api_key, llm.openai_base_url
    else:
        api_key, base_url = llm.anthropic_api_key, llm.anthropic_base_url
    if api_key is None:
        raise ConfigurationError(f"judge {name.value} needs ATTRIBUTION_LLM__{name.value.upper()}_API_KEY")
    return api_key, base_url


def _refuse_unpriced(settings: Settings, prices: ListedPrices, name: JudgeName, model: str) -> None:
    budgets = settings.budgets
    limits = Limits(
        budgets.total_usd_per_hour,
        budgets.total_usd_per_day,
        budgets.tenant_usd_per_hour,
        budgets.tenant_usd_per_day,
    )
    refuse_unpriced_budgets(limits, prices, [(name.value, model)], datetime.now(UTC))
