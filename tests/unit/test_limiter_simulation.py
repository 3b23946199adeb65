"""Thousands of seeded schedules on a virtual clock: whatever happens to the calls, the limiter keeps its promises.

`SOAK_SCHEDULES` runs more of them.
"""

import asyncio
import os
import random
from dataclasses import dataclass, field
from enum import Enum, auto

import pytest

from tests.fakes.rate_limited_account import RateLimitedAccount
from tests.support.limiters import LimiterParts, now_ns
from tests.support.virtual_time import run_in_virtual_time
from worker.core.buckets import MINUTE_NS, SECOND_NS
from worker.core.charging import Charge, ChargingRule, Dimension, Estimate
from worker.core.llm import CompletionUsage
from worker.limiter import CallTooLargeError, Limiter, Slot
from worker.settings import LimiterSettings

SCHEDULES = int(os.environ.get("SOAK_SCHEDULES", "10000"))  # noqa: TID251  # of the run, not of the worker
BATCHES = 20
UNSEEN_S_MAX = 20
PIECES = 3
"""In how many pieces an output comes out."""


class Fate(Enum):
    SERVED = auto()
    CANCELLED = auto()
    NEVER_SENT = auto()
    RESET = auto()


@dataclass(frozen=True)
class Call:
    admission: int
    comes_at_s: float
    estimate: Estimate
    usage: CompletionUsage
    delivery_s: float
    latency_s: float
    fate: Fate
    cancelled_after_s: float


@dataclass(frozen=True)
class Schedule:
    """Everything that is decided before it starts."""

    rule: ChargingRule
    limits: dict[Dimension, int]
    calls_in_flight: int
    burst_s: float
    headers_told: bool
    calls: tuple[Call, ...]

    @property
    def settings(self) -> LimiterSettings:
        return LimiterSettings(
            **{f"{dimension.value}_per_minute": limit for dimension, limit in self.limits.items()},
            calls_in_flight=self.calls_in_flight,
            burst_s=self.burst_s,
            initial_burst_s=self.burst_s,
            unseen_s_max=UNSEEN_S_MAX,
            wait_max_s=10**6,
        )


def schedule(seed: int) -> Schedule:
    rng = random.Random(seed)
    limits = {
        dimension: rng.choice([1, 7, 60, 600]) if dimension is Dimension.REQUESTS else rng.choice([500, 4_000, 60_000])
        for dimension in rng.sample(list(Dimension), rng.randint(1, 4))
    }
    tokens_max = min([4_000, *(limit for name, limit in limits.items() if name is not Dimension.REQUESTS)])
    late_s = rng.choice([0.0, 0.5, UNSEEN_S_MAX / 2])
    pace_s = rng.choice([0.0, 0.1, 5.0])
    calls = tuple(_call(rng, tokens_max, late_s, pace_s) for _ in range(rng.randint(2, 16)))
    return Schedule(
        rule=ChargingRule(rng.choice(list(Charge)), cache_reads_charged=True),
        limits=limits,
        calls_in_flight=rng.choice([1, 3, 100]),
        burst_s=rng.choice([1.0, 20.0, 60.0]),
        headers_told=rng.random() < 0.5,
        calls=calls,
    )


def _call(rng: random.Random, tokens_max: int, late_s: float, pace_s: float) -> Call:
    size = rng.choice([10, tokens_max // 4, tokens_max])
    input_tokens = rng.randint(1, max(1, size // 2))
    output_max = rng.randint(1, max(1, size // 2))
    # An expectation below the cap is kept here: the limits are kept as well as it is.
    expected = rng.choice([None, output_max // 2])
    most = output_max if expected is None else expected
    return Call(
        admission=rng.randint(1, 8),
        comes_at_s=rng.random() * pace_s * 16,
        estimate=Estimate(input_tokens + rng.choice([0, 0, size // 20]), output_max, expected),
        usage=CompletionUsage(input_tokens=input_tokens, output_tokens=rng.choice([0, most // 3, most])),
        delivery_s=rng.random() * late_s,
        latency_s=rng.random() * late_s,
        fate=rng.choices(list(Fate), weights=[6, 2, 1, 1])[0],
        cancelled_after_s=rng.choice([0.0, rng.random(), rng.random() * 60]),
    )


@dataclass
class World:
    """One schedule as it happens, and what was seen of it."""

    schedule: Schedule
    limiter: Limiter
    account: RateLimitedAccount
    providers: asyncio.TaskGroup
    waiting: dict[int, tuple[int, int]] = field(default_factory=dict)
    granted_at_ns: dict[int, int] = field(default_factory=dict)
    left_at_ns: dict[int, int] = field(default_factory=dict)
    came_at_ns: dict[int, int] = field(default_factory=dict)
    passed_over: list[tuple[int, int]] = field(default_factory=list)
    in_flight: int = 0
    in_flight_peak: int = 0
    cancelled: set[int] = field(default_factory=set)
    too_large: set[int] = field(default_factory=set)

    async def make(self, number: int, call: Call) -> None:
        try:
            await asyncio.sleep(call.comes_at_s)
            self.came_at_ns[number] = now_ns()
            self.waiting[number] = (call.admission, now_ns())
            async with self.limiter.slot(admission=call.admission, estimate=call.estimate) as slot:
                self._note_grant(number, slot)
                try:
                    await self._inside(slot, call)
                finally:
                    self.in_flight -= 1
        except CallTooLargeError:
            self.too_large.add(number)
        except ConnectionError:
            pass
        except asyncio.CancelledError:
            self.cancelled.add(number)
            raise
        finally:
            self.waiting.pop(number, None)
            self.left_at_ns[number] = now_ns()

    def _note_grant(self, number: int, slot: Slot) -> None:
        self.in_flight += 1
        self.in_flight_peak = max(self.in_flight, self.in_flight_peak)
        admission, came_at_ns = self.waiting.pop(number)
        granted_at_ns = came_at_ns + round(slot.waited_s * SECOND_NS)
        self.granted_at_ns[number] = granted_at_ns
        self.passed_over += [
            (other, number)
            for other, (others_admission, others_came_at_ns) in self.waiting.items()
            if others_came_at_ns < granted_at_ns and others_admission < admission
        ]

    async def _inside(self, slot: Slot, call: Call) -> None:
        if call.fate is Fate.NEVER_SENT:
            await asyncio.sleep(call.delivery_s)
            raise ConnectionError
        slot.sent()
        done = asyncio.get_running_loop().create_future()
        # The provider does not care whether the caller still listens.
        self.providers.create_task(self._serve(call, done))
        headers = await asyncio.shield(done)
        if call.fate is Fate.RESET:
            raise ConnectionResetError
        slot.answered(200, headers if self.schedule.headers_told else {})
        slot.settle(call.usage)

    async def _serve(self, call: Call, done: "asyncio.Future[dict[str, str]]") -> None:
        await asyncio.sleep(call.delivery_s)
        input_tokens, output_max = call.usage.input_tokens, call.estimate.output_tokens_max
        self.account.arrive(now_ns(), input_tokens, output_max)
        headers = self.account.headers(now_ns())
        for piece in range(PIECES):
            await asyncio.sleep(call.latency_s / PIECES)
            so_far = call.usage.output_tokens * piece // PIECES
            self.account.produce(now_ns(), call.usage.output_tokens * (piece + 1) // PIECES - so_far)
        self.account.complete(now_ns(), input_tokens, output_max, call.usage)
        if not done.done():
            done.set_result(headers)


async def play(plan: Schedule) -> World:
    """Everything that the schedule says, to its end."""
    limiter = LimiterParts(settings=plan.settings, rule=plan.rule).build()
    account = RateLimitedAccount(plan.rule.charge, plan.limits)
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as providers:
        world = World(plan, limiter, account, providers)
        async with asyncio.TaskGroup() as callers:
            for number, call in enumerate(plan.calls):
                task = callers.create_task(world.make(number, call))
                if call.fate is Fate.CANCELLED:
                    loop.call_at(call.comes_at_s + call.cancelled_after_s, task.cancel)
    check_nothing_leaked(world)
    await asyncio.sleep(3_600)
    check_all_is_back(world)
    return world


def check_nothing_leaked(world: World) -> None:
    state = world.limiter.state()
    assert state.waiting == 0
    assert state.account.calls_in_flight == 0


def check_all_is_back(world: World) -> None:
    """After an hour of rest every bucket is exactly full."""
    burst_s = int(world.schedule.burst_s)
    full = {name: limit * burst_s // 60 for name, limit in world.schedule.limits.items()}
    assert world.limiter.state().account.held == 0
    assert world.limiter.state().account.available == full


def check_limits_kept(world: World) -> None:
    """By the provider's own arithmetic: it refused nobody, and no span of time took more than its bucket gives."""
    assert world.in_flight_peak <= world.schedule.calls_in_flight
    assert world.account.refused_at_ns == []
    if world.schedule.rule.charge is Charge.CAP_REFUNDED:
        return
    for limit, allowance in world.account.allowances.items():
        for first, (since_ns, _) in enumerate(allowance.charges):
            charged = 0
            for at_ns, amount in allowance.charges[first:]:
                charged += amount
                assert charged * MINUTE_NS <= allowance.per_minute * (MINUTE_NS + at_ns - since_ns), limit


def check_order_kept(world: World) -> None:
    """No call was granted while one of an older answer waited."""
    assert world.passed_over == []


def check_nothing_starved(world: World) -> None:
    """Everyone had a turn, and waited no longer than if calls were made one by one, each on an empty bucket."""
    plan = world.schedule
    for number, call in enumerate(plan.calls):
        if number in world.cancelled:
            continue
        if number in world.too_large:
            needed = plan.rule.needed_at_admission(call.estimate)
            assert any(needed[name] > limit for name, limit in plan.limits.items())
            continue
        came_at_ns, granted_at_ns = world.came_at_ns[number], world.granted_at_ns[number]
        before = [
            plan.calls[other]
            for other, at_ns in world.granted_at_ns.items()
            if other == number or (at_ns <= granted_at_ns and world.left_at_ns[other] >= came_at_ns - 2 * MINUTE_NS)
        ]
        assert (granted_at_ns - came_at_ns) / SECOND_NS <= sum(_alone_s(plan, call) for call in before)


def _alone_s(plan: Schedule, call: Call) -> float:
    """The whole of a call, from an empty bucket to its end; a millisecond is the shortest timer."""
    refill_s = max(
        reservation.tokens * 60 / plan.limits[name]
        for name, reservation in plan.rule.reserve(call.estimate).items()
        if name in plan.limits
    )
    unseen_s = 0 if call.fate is Fate.SERVED else UNSEEN_S_MAX
    # A header counts what is in flight as gone, and it is gone once more when it settles.
    times = 2 if plan.headers_told else 1
    return refill_s * times + call.delivery_s + call.latency_s + unseen_s + 0.01


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_schedule_passes_a_limit_starves_a_call_or_leaks_a_token(batch: int) -> None:
    for seed in range(batch, SCHEDULES, BATCHES):
        world = run_in_virtual_time(play(schedule(seed)))
        try:
            check_limits_kept(world)
            check_order_kept(world)
            check_nothing_starved(world)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {schedule(seed)}") from error


def test_a_schedule_plays_the_same_every_time() -> None:
    first, second = (run_in_virtual_time(play(schedule(seed=11))) for _ in range(2))
    assert first.granted_at_ns == second.granted_at_ns
    assert len(first.granted_at_ns) > 1
