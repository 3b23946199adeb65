"""A limiter on the running loop's clock, with what a test wants different and nothing left to chance."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fakes.rate_limited_account import EPOCH
from worker.core.breaker import CircuitBreaker
from worker.core.buckets import SECOND_NS
from worker.core.charging import OPENAI_CHARGING, ChargingRule, Estimate
from worker.limiter import Limiter, LoopClock
from worker.settings import LimiterSettings

MODEL = "model"
SMALL = Estimate(input_tokens=100, output_tokens_max=100)


class EpochClock(LoopClock):
    """The loop's time, with a time of day that began when the loop did."""

    def wall_s(self) -> float:
        return EPOCH.timestamp() + asyncio.get_running_loop().time()


def now_ns() -> int:
    """The running loop's time, exactly as the limiter reads it."""
    return LoopClock().monotonic_ns()


@dataclass
class LimiterParts:
    """What goes into a limiter; a test changes what it is about."""

    settings: LimiterSettings = field(default_factory=LimiterSettings)
    rule: ChargingRule = OPENAI_CHARGING
    breaker: CircuitBreaker = field(default_factory=lambda: CircuitBreaker(failures_max=5, open_ns=15 * SECOND_NS))
    jitter: Callable[[], float] = lambda: 0.0
    long_waits_s: list[float] = field(default_factory=list)

    def build(self) -> Limiter:
        """Needs a running loop."""
        return Limiter(
            model=MODEL,
            settings=self.settings,
            rule=self.rule,
            breaker=self.breaker,
            clock=EpochClock(),
            on_long_wait=self.long_waits_s.append,
            jitter=self.jitter,
        )
