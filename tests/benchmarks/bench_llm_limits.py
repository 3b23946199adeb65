"""How much of a rate limit is used, over real sockets and real SDKs, with an account that enforces it.

The account (the emulator) gives 600 requests and 200,000 tokens a minute as token buckets, charged by each provider's
own rule. Thirty of its seconds pass in one of ours, for it and for the limiter alike. Calls of unequal size come
without end, each takes two of its seconds, and asks for at most 1,500 tokens of output. Beside ours, with the same
calls: a semaphore with retries, and aiolimiter before the same retries.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count

import uvloop
from aiolimiter import AsyncLimiter
from pydantic import SecretStr

from tests.benchmarks.figure import Figure
from tests.fakes.provider import FakePrices
from tests.support.llm import ANTHROPIC, API_KEY, OPENAI, SECRET, TIMEOUT_S, Dialect, base_url_of
from worker.adapters.llm.open_provider import open_provider
from worker.adapters.llm.tokens import count_tokens
from worker.adapters.unstored import UnboundedBudgets, UnstoredJournal
from worker.calls import Asking, Calls
from worker.core.asking import Asker, JudgingMethod, ModelLimits
from worker.core.breaker import CircuitBreaker
from worker.core.buckets import SECOND_NS
from worker.core.charging import ANTHROPIC_CHARGING, OPENAI_CHARGING
from worker.core.fencing import show
from worker.core.llm import CompletionRequest
from worker.core.model import Answer, AnswerId, AnswerKey, TenantId
from worker.embedded.llm_emulator.chances import Fixed, Lognormal
from worker.embedded.llm_emulator.emulator import LlmEmulator
from worker.embedded.llm_emulator.judgements import instant_opinion
from worker.embedded.llm_emulator.options import EmulatorOptions
from worker.embedded.llm_emulator.rate_limits import RateLimits
from worker.limiter import Limiter, Timer
from worker.llm_ports import CallFailedError, Provider
from worker.settings import LimiterSettings, LlmSettings, LogSettings
from worker.telemetry import Telemetry, configure_logging

REQUESTS_PER_MINUTE = 600
TOKENS_PER_MINUTE = 200_000
OUTPUT_CAP = 1_500
LATENCY_S = 2.0
REASONED = Lognormal(330, 0.6)
"""What most outputs are: far below a cap that is chosen for the longest."""
CALLERS = 64
ANSWER_WORDS = (300, 500, 800, 1_500, 2_500, 6_000)
TIME_SCALE = 30.0
WARM_UP_S = 90.0
MEASURED_S = 300.0
CHARGED_GOAL = 0.97
BASELINE_IN_FLIGHT = 16
NOW = datetime(2026, 6, 1, tzinfo=UTC)


class ScaledClock:
    """`TIME_SCALE` of its seconds pass in one of the loop's: the account's time, for the limiter."""

    def monotonic_ns(self) -> int:
        return round(asyncio.get_running_loop().time() * TIME_SCALE * SECOND_NS)

    def wall_s(self) -> float:
        return time.time() * TIME_SCALE

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(delay_s / TIME_SCALE, 0.001), callback)


async def sleep_scaled(seconds: float) -> None:
    await asyncio.sleep(seconds / TIME_SCALE)


@dataclass(frozen=True)
class Account:
    """One provider's limits and way to charge; `settings` are the same, as our limiter is told them."""

    name: str
    dialect: Dialect
    limits: RateLimits
    settings: LimiterSettings


CAP_AT_ADMISSION = Account(
    "cap charged at admission (OpenAI)",
    OPENAI,
    RateLimits(requests=REQUESTS_PER_MINUTE, tokens=TOKENS_PER_MINUTE),
    LimiterSettings(
        requests_per_minute=REQUESTS_PER_MINUTE, tokens_per_minute=TOKENS_PER_MINUTE, calls_in_flight=CALLERS
    ),
)
AS_PRODUCED = Account(
    "output charged as produced (Anthropic)",
    ANTHROPIC,
    RateLimits(requests=REQUESTS_PER_MINUTE, input_tokens=TOKENS_PER_MINUTE, output_tokens=TOKENS_PER_MINUTE),
    LimiterSettings(
        requests_per_minute=REQUESTS_PER_MINUTE,
        input_tokens_per_minute=TOKENS_PER_MINUTE,
        output_tokens_per_minute=TOKENS_PER_MINUTE,
        calls_in_flight=CALLERS,
    ),
)


class Requests:
    """Calls of unequal size without end, each another one, in the same order on every run."""

    def __init__(self) -> None:
        self._random = random.Random(7)
        self._numbers = count()
        words = [f"harbour {number}" for number in range(100)]
        self._texts = {length: " ".join(self._random.choices(words, k=length // 2)) for length in ANSWER_WORDS}

    def next(self) -> tuple[Asking, CompletionRequest]:
        number = next(self._numbers)
        key = AnswerKey(TenantId("bench"), AnswerId(f"a-{number}"))
        text = self._texts[self._random.choice(ANSWER_WORDS)]
        answer = Answer(key, NOW, "What is there?", text, (), b"")
        limits = ModelLimits(input_tokens_max=100_000, output_tokens_max=OUTPUT_CAP)
        request = Asker(show(answer, SECRET), JudgingMethod(), limits, len).decompose()
        return Asking(key, number), replace(request, output_tokens_max=OUTPUT_CAP)


Call = Callable[[Asking, CompletionRequest], Awaitable[None]]
Means = Callable[[Provider, Account], Call]


def with_ours(provider: Provider, account: Account) -> Call:
    """The worker's own way: journal → limiter → budget → provider."""
    limiter = Limiter(
        model=provider.model,
        settings=account.settings,
        rule=OPENAI_CHARGING if account.dialect is OPENAI else ANTHROPIC_CHARGING,
        breaker=CircuitBreaker(failures_max=5, open_ns=SECOND_NS),
        clock=ScaledClock(),
    )
    calls = Calls(
        provider=provider,
        limiter=limiter,
        journal=UnstoredJournal(),
        budgets=UnboundedBudgets(),
        prices=FakePrices(None),
        # As for OpenAI's own models, which count as we do; a margin is for models that count otherwise.
        settings=LlmSettings(token_margin=1.0),
        count_tokens=count_tokens,
        telemetry=Telemetry(),
        sleep=sleep_scaled,
    )

    async def call(asking: Asking, request: CompletionRequest) -> None:
        await calls.completion(request, asking)

    return call


def with_semaphore(provider: Provider, _: Account) -> Call:
    semaphore = asyncio.Semaphore(BASELINE_IN_FLIGHT)

    async def call(_: Asking, request: CompletionRequest) -> None:
        async with semaphore:
            await until_served(provider, request)

    return call


def with_aiolimiter(provider: Provider, account: Account) -> Call:
    minute_s = 60 / TIME_SCALE
    requests, tokens = AsyncLimiter(REQUESTS_PER_MINUTE, minute_s), AsyncLimiter(TOKENS_PER_MINUTE, minute_s)
    counts_cap = account.dialect is OPENAI

    async def call(_: Asking, request: CompletionRequest) -> None:
        await requests.acquire()
        size = sum(map(count_tokens, (request.instructions, request.question)))
        await tokens.acquire(size + (request.output_tokens_max if counts_cap else 0))
        await until_served(provider, request)

    return call


async def until_served(provider: Provider, request: CompletionRequest) -> None:
    """As clients do: come again when the provider says so, and a little later than the others."""
    while True:
        try:
            await provider.complete(request, client_request_id="baseline", timeout_s=TIMEOUT_S)
        except CallFailedError as error:
            await sleep_scaled(float(error.problem.retry_after or 1) * random.uniform(1, 1.25))
        else:
            return


@dataclass(frozen=True)
class Outcome:
    """What the account saw after the warm-up: of its scarcest limit, the share that was charged."""

    charged: float
    refused: int
    served: int


@asynccontextmanager
async def account_of(account: Account) -> AsyncIterator[tuple[LlmEmulator, Provider]]:
    options = EmulatorOptions(
        latency_s=Fixed(LATENCY_S),
        reasoning_tokens=REASONED,
        limits=account.limits,
        time_scale=TIME_SCALE,
        opinion=instant_opinion,
        requests_kept=0,
    )
    async with LlmEmulator(options) as emulator:
        dialect = account.dialect
        url = base_url_of(dialect, emulator)
        async with open_provider(dialect.provider, dialect.model, SecretStr(API_KEY), url, 2 * CALLERS) as provider:
            yield emulator, provider


def charged(emulator: LlmEmulator) -> dict[str, int]:
    (states,) = emulator.limits().values()
    return {name: state["charged"] for name, state in states.items()}


async def measure(account: Account, means: Means) -> Outcome:
    async with account_of(account) as (emulator, provider):
        call, requests = means(provider, account), Requests()

        async def caller() -> None:
            while True:
                await call(*requests.next())

        async with asyncio.TaskGroup() as tasks:
            callers = [tasks.create_task(caller()) for _ in range(CALLERS)]
            await sleep_scaled(WARM_UP_S)
            began_s, before = time.monotonic(), charged(emulator)
            refused, served = emulator.requests_by_status.get(429, 0), len(emulator.bill.lines)
            await sleep_scaled(MEASURED_S)
            minutes = (time.monotonic() - began_s) * TIME_SCALE / 60
            after = charged(emulator)
            refused = emulator.requests_by_status.get(429, 0) - refused
            served = len(emulator.bill.lines) - served
            for task in callers:
                task.cancel()
    allowed = {name: getattr(account.limits, name) * minutes for name in after}
    return Outcome(max((after[name] - before[name]) / allowed[name] for name in after), refused, served)


def told(outcome: Outcome) -> str:
    return f"{outcome.charged:.1%} charged, {outcome.refused} refused, {outcome.served} served"


def beside_others(account: Account) -> Figure:
    ours, semaphore, aiolimiter = (
        uvloop.run(measure(account, means)) for means in (with_ours, with_semaphore, with_aiolimiter)
    )
    return Figure(
        name=f"{account.name}: 600 requests, 200k tokens a minute, cap {OUTPUT_CAP:,}, {LATENCY_S:g} s",
        measured=told(ours),
        baseline=f"semaphore of {BASELINE_IN_FLIGHT} and retries: {told(semaphore)}; aiolimiter: {told(aiolimiter)}",
        ratio=ours.charged / aiolimiter.charged,
        goal=f"≥ {CHARGED_GOAL:.0%} of what the bucket allows is charged, 0 refused after warm-up",
        met=ours.charged >= CHARGED_GOAL and ours.refused == 0,
    )


def run() -> list[Figure]:
    """About a minute and a half, most of it waiting."""
    configure_logging(LogSettings(level="error"))
    return [beside_others(account) for account in (CAP_AT_ADMISSION, AS_PRODUCED)]
