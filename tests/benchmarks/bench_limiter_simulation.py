"""How much of an account's limits the limiter uses, on a virtual clock, beside what people use instead.

A provider that enforces 600 requests and 200,000 tokens a minute by itself is called without end by more callers than
it can serve. *Charged* is what it charged after warm-up over what its limits refill in that time, for the scarcer one;
*used* is the part of it that was really read and written: a cap that is charged at admission is mostly not.
"""

import asyncio
import random
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from aiolimiter import AsyncLimiter

from tests.benchmarks.figure import Figure
from tests.fakes.rate_limited_account import RateLimitedAccount
from tests.support.limiters import LimiterParts, now_ns
from tests.support.virtual_time import run_in_virtual_time
from worker.core.buckets import MINUTE_NS, SECOND_NS
from worker.core.charging import Charge, ChargingRule, Dimension, Estimate
from worker.core.llm import CompletionUsage
from worker.limiter import Limiter
from worker.settings import LimiterSettings

REQUESTS_PER_MINUTE = 600
TOKENS_PER_MINUTE = 200_000
CALLERS = 64
WARM_UP_MINUTES = 3
MEASURED_MINUTES = 20
DELIVERY_S = 0.2
CHARGED_GOAL = 0.97
LARGE_INPUT = 12_000


@dataclass(frozen=True)
class Load:
    charge: Charge
    output_cap: int = 1_500
    latency_s: float = 2.0
    output_limit: int | None = None
    expected: int | None = None
    inputs: tuple[int, ...] = (800, 1_000, 1_200, 3_000, 4_000, LARGE_INPUT)


@dataclass
class Outcome:
    """What the account saw after warm-up."""

    charged: float = 0.0
    used: float = 0.0
    refused: int = 0
    large_waits_s: list[float] = field(default_factory=list)
    small_waits_s: list[float] = field(default_factory=list)


class World:
    """The provider, and calls of unequal size that come without end."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.rng = random.Random(7)
        limits = {Dimension.REQUESTS: REQUESTS_PER_MINUTE, Dimension.TOKENS: TOKENS_PER_MINUTE}
        if load.output_limit is not None:
            limits[Dimension.OUTPUT_TOKENS] = load.output_limit
        self.account = RateLimitedAccount(load.charge, limits)
        self.used_tokens = 0
        self.outcome = Outcome()

    @property
    def running(self) -> bool:
        return now_ns() < (WARM_UP_MINUTES + MEASURED_MINUTES) * MINUTE_NS

    @property
    def measuring(self) -> bool:
        return self.running and now_ns() >= WARM_UP_MINUTES * MINUTE_NS

    def next_call(self) -> tuple[Estimate, CompletionUsage]:
        cap = self.load.output_cap
        input_tokens = self.rng.choice(self.load.inputs)
        # Most outputs are far below a cap that is chosen for the longest.
        output_tokens = min(cap, int(self.rng.lognormvariate(5.8, 0.6)))
        return Estimate(input_tokens, cap, self.load.expected), CompletionUsage(input_tokens, output_tokens)

    async def serve(self, estimate: Estimate, usage: CompletionUsage) -> float | None:
        """None when served; else the seconds after which to come again."""
        await asyncio.sleep(DELIVERY_S * self.rng.random())
        retry_after_s = self.account.arrive(now_ns(), estimate.input_tokens, estimate.output_tokens_max)
        if retry_after_s is not None:
            self.outcome.refused += self.measuring
            return retry_after_s
        latency_s = self.load.latency_s * self.rng.uniform(0.5, 1.5)
        for _ in range(4):
            await asyncio.sleep(latency_s / 4)
            self.account.produce(now_ns(), usage.output_tokens // 4)
        self.account.produce(now_ns(), usage.output_tokens % 4)
        self.account.complete(now_ns(), estimate.input_tokens, estimate.output_tokens_max, usage)
        if self.measuring:
            self.used_tokens += usage.input_tokens + usage.output_tokens
        return None

    def granted(self, estimate: Estimate, since_ns: int) -> None:
        if self.measuring:
            waits_s = self.outcome.large_waits_s if estimate.input_tokens >= LARGE_INPUT else self.outcome.small_waits_s
            waits_s.append((now_ns() - since_ns) / SECOND_NS)

    def finish(self) -> Outcome:
        shares = []
        for allowance in self.account.allowances.values():
            charged = sum(amount for at_ns, amount in allowance.charges if self._counts(at_ns))
            shares.append(charged / (allowance.per_minute * MEASURED_MINUTES))
        self.outcome.charged = max(shares)
        self.outcome.used = self.used_tokens / (TOKENS_PER_MINUTE * MEASURED_MINUTES)
        return self.outcome

    def _counts(self, at_ns: int) -> bool:
        return WARM_UP_MINUTES * MINUTE_NS <= at_ns < (WARM_UP_MINUTES + MEASURED_MINUTES) * MINUTE_NS


Caller = Callable[[World], Awaitable[None]]


async def _with_limiter(limiter: Limiter, admissions: "count[int]", world: World) -> None:
    estimate, usage = world.next_call()
    since_ns = now_ns()
    async with limiter.slot(admission=next(admissions), estimate=estimate) as slot:
        world.granted(estimate, since_ns)
        slot.sent()
        retry_after_s = await world.serve(estimate, usage)
        if retry_after_s is None:
            slot.answered(200, world.account.headers(now_ns()))
            slot.settle(usage)
        else:
            slot.answered(429, {"Retry-After": str(retry_after_s)})


async def _with_semaphore(semaphore: asyncio.Semaphore, world: World) -> None:
    estimate, usage = world.next_call()
    since_ns = now_ns()
    async with semaphore:
        await _until_served(world, estimate, usage)
        world.granted(estimate, since_ns)


async def _with_aiolimiter(requests: AsyncLimiter, tokens: AsyncLimiter, world: World) -> None:
    estimate, usage = world.next_call()
    since_ns = now_ns()
    await requests.acquire()
    await tokens.acquire(estimate.input_tokens + estimate.output_tokens_max)
    world.granted(estimate, since_ns)
    await _until_served(world, estimate, usage)


async def _until_served(world: World, estimate: Estimate, usage: CompletionUsage) -> None:
    """As clients do: come again when the provider says so, and a little later than the others."""
    retry_after_s = await world.serve(estimate, usage)
    while retry_after_s is not None and world.running:
        await asyncio.sleep(retry_after_s * world.rng.uniform(1, 1.25))
        retry_after_s = await world.serve(estimate, usage)


def _limiter(world: World) -> Caller:
    settings = LimiterSettings(
        requests_per_minute=REQUESTS_PER_MINUTE,
        tokens_per_minute=TOKENS_PER_MINUTE,
        output_tokens_per_minute=world.load.output_limit,
        calls_in_flight=CALLERS,
    )
    rule = ChargingRule(world.load.charge, cache_reads_charged=True)
    return partial(_with_limiter, LimiterParts(settings, rule).build(), count())


def _semaphore(_: World) -> Caller:
    return partial(_with_semaphore, asyncio.Semaphore(16))


def _aiolimiter(_: World) -> Caller:
    return partial(_with_aiolimiter, AsyncLimiter(REQUESTS_PER_MINUTE), AsyncLimiter(TOKENS_PER_MINUTE))


def simulate(load: Load, means: Callable[[World], Caller]) -> Outcome:
    """Calls without end, made by these means."""

    async def play() -> Outcome:
        world = World(load)
        call = means(world)

        async def caller() -> None:
            while world.running:
                await call(world)

        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(caller())
        return world.finish()

    return run_in_virtual_time(play())


def _told(outcome: Outcome) -> str:
    return f"{outcome.charged:.1%} charged, {outcome.used:.1%} used, {outcome.refused} refused"


def _beside_others(name: str, load: Load) -> Figure:
    ours, semaphore, aiolimiter = (simulate(load, means) for means in (_limiter, _semaphore, _aiolimiter))
    return Figure(
        name=name,
        measured=_told(ours),
        baseline=f"semaphore and retries: {_told(semaphore)}; aiolimiter: {_told(aiolimiter)}",
        ratio=ours.charged / aiolimiter.charged,
        goal=f"≥ {CHARGED_GOAL:.0%} of what the bucket allows is charged, 0 refused",
        met=ours.charged >= CHARGED_GOAL and ours.refused == 0,
    )


def _on_the_curve(load: Load) -> Figure:
    ours, aiolimiter = simulate(load, _limiter), simulate(load, _aiolimiter)
    output_limit = "" if load.output_limit is None else f", {load.output_limit:,} output tokens a minute"
    expected = "" if load.expected is None else f", {load.expected} of them expected"
    return Figure(
        name=f"{load.charge.value}, cap {load.output_cap:,}{expected}, {load.latency_s:g} s{output_limit}",
        measured=_told(ours),
        baseline=f"aiolimiter: {_told(aiolimiter)}",
        ratio=ours.charged / aiolimiter.charged,
        goal="the curve over larger caps and latencies",
        met=None,
    )


def _price_of_order(load: Load) -> list[Figure]:
    ours, aiolimiter = simulate(load, _limiter), simulate(load, _aiolimiter)
    large, small = (
        (max(ours.large_waits_s), max(aiolimiter.large_waits_s, default=0.0)),
        (statistics.median(ours.small_waits_s), statistics.median(aiolimiter.small_waits_s)),
    )
    return [
        Figure(
            name=f"longest wait of a {LARGE_INPUT:,}-token call",
            measured=f"{large[0]:.0f} s, {len(ours.large_waits_s)} granted",
            baseline=f"aiolimiter: {large[1]:.0f} s, {len(aiolimiter.large_waits_s)} granted",
            ratio=large[0] / large[1] if large[1] else None,
            goal="a large call is not starved",
            met=max(ours.large_waits_s) <= 2 * max(ours.small_waits_s),
        ),
        Figure(
            name="median wait of the other calls: the price of order",
            measured=f"{small[0]:.1f} s, {len(ours.small_waits_s)} granted",
            baseline=f"aiolimiter: {small[1]:.1f} s, {len(aiolimiter.small_waits_s)} granted",
            ratio=small[0] / small[1] if small[1] else None,
            goal="told, not aimed for",
            met=None,
        ),
    ]


def run() -> list[Figure]:
    """Every figure; about a minute of CPU."""
    asked = [
        _beside_others("cap charged at admission, cap 1,500, 2 s", Load(Charge.CAP_AT_ADMISSION)),
        _beside_others("output charged as produced, cap 1,500, 2 s", Load(Charge.AS_PRODUCED)),
        _beside_others(
            "small calls, where requests are scarce", Load(Charge.CAP_AT_ADMISSION, output_cap=100, inputs=(100, 200))
        ),
    ]
    curve = [
        _on_the_curve(replace(Load(charge), output_cap=cap, latency_s=latency_s))
        for charge in Charge
        for cap, latency_s in [(1_500, 15.0), (8_192, 2.0), (8_192, 15.0)]
    ]
    tight = Load(Charge.AS_PRODUCED, output_cap=8_192, latency_s=15.0, output_limit=20_000)
    curve += [_on_the_curve(tight), _on_the_curve(replace(tight, expected=600))]
    return [*asked, *curve, *_price_of_order(Load(Charge.CAP_AT_ADMISSION))]
