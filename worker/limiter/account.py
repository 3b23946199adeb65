"""One account at a provider, for one model: what it may do now, and what each response tells about it."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from worker.core.breaker import BreakerState, CircuitBreaker, Ticket
from worker.core.buckets import PERMILLE, SECOND_NS
from worker.core.charging import ChargingRule, Dimension, Estimate, Reservation
from worker.core.llm import CompletionUsage
from worker.core.quota import Grant, Limits, Quota, TooLarge
from worker.core.ratelimit_headers import read_headers
from worker.core.throttle import Throttle, ThrottlePolicy
from worker.limiter.clock import Clock
from worker.settings import LimiterSettings, ModelLimits

REFUSALS: Final = frozenset({429, 529})
"""Too many requests; overloaded. The provider did not begin on the call."""


@dataclass(frozen=True, slots=True)
class AccountState:
    """`speed` is a share of the limits; `available` is in tokens or requests, negative while a debt is paid back."""

    calls_in_flight: int
    speed: float
    paused_s: float
    breaker: BreakerState
    available: Mapping[Dimension, int]
    held: int


class Account:
    """Limits, slowdowns and the provider's circuit breaker as one."""

    def __init__(
        self,
        *,
        limits: ModelLimits,
        settings: LimiterSettings,
        rule: ChargingRule,
        breaker: CircuitBreaker,
        clock: Clock,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        now_ns = clock.monotonic_ns()
        self._rule = rule
        self._breaker = breaker
        self._clock = clock
        self._jitter = jitter
        self._throttle = Throttle(_throttle_policy(settings), now_ns=now_ns)
        self._quota = Quota(
            limits=_limits(limits),
            throttle=self._throttle,
            burst_ns=_ns(settings.burst_s),
            initial_burst_ns=_ns(settings.initial_burst_s),
            unseen_ns_max=_ns(settings.unseen_s_max),
            learns_limits=settings.learn_limits,
            now_ns=now_ns,
        )

    def too_large(self, estimate: Estimate) -> TooLarge | None:
        """The configured limit that the call exceeds by itself."""
        return self._quota.too_large(self._rule.needed_at_admission(estimate))

    def down_for_s(self) -> float:
        """0 unless the provider counts as down: then how long to stay away."""
        return self._breaker.retry_after_ns(self._clock.monotonic_ns()) / SECOND_NS

    def ready_in_s(self, reservations: Mapping[Dimension, Reservation]) -> float | None:
        """0: the call may go now. None: not before a call in flight ends."""
        now_ns = self._clock.monotonic_ns()
        ready_ns = self._quota.ready_at_ns(reservations, now_ns)
        return None if ready_ns is None else (ready_ns - now_ns) / SECOND_NS

    def grant(self, reservations: Mapping[Dimension, Reservation]) -> tuple[Grant, Ticket]:
        """Reserve all of it, now."""
        return self._quota.grant(reservations, self._clock.monotonic_ns()), self._breaker.let_through()

    def sent(self, grant: Grant) -> None:
        """The call leaves."""
        self._quota.sent(grant, self._clock.monotonic_ns())

    def answered(self, grant: Grant, ticket: Ticket, status: int, headers: Mapping[str, str]) -> None:
        """Slow down, speed up, open or close, and learn, as the response says."""
        now_ns = self._clock.monotonic_ns()
        said = read_headers(headers, wall_s=self._clock.wall_s())
        asked_ns = None if said.retry_after_s is None else round(said.retry_after_s * SECOND_NS)
        if status in REFUSALS:
            self._quota.empty(now_ns)
            self._throttle.refused(
                granted_ns=grant.granted_ns, retry_after_ns=asked_ns, jitter=self._jitter(), now_ns=now_ns
            )
        elif status >= 500 and asked_ns:
            self._throttle.pause(pause_ns=asked_ns, jitter=self._jitter(), now_ns=now_ns)
        elif status < 400:
            self._throttle.accepted()
        self._quota.learn(grant, said, now_ns)
        if status >= 500:
            self._breaker.failed(ticket, now_ns)
        else:
            self._breaker.answered(ticket)

    def unanswered(self, ticket: Ticket) -> None:
        """Nothing came back at all."""
        self._breaker.failed(ticket, self._clock.monotonic_ns())

    def settle(self, grant: Grant, usage: CompletionUsage) -> None:
        """Charge what a sent call really used."""
        self._quota.settle(grant, self._rule.used(usage), self._clock.monotonic_ns())

    def abandon(self, grant: Grant) -> None:
        """A sent call may use all it reserved, and nobody will know."""
        self._quota.abandon(grant, self._clock.monotonic_ns())

    def refused(self, grant: Grant) -> None:
        """The provider did not begin on the call."""
        self._quota.refused(grant, self._clock.monotonic_ns())

    def withdraw(self, grant: Grant) -> None:
        """The call was never sent."""
        self._quota.withdraw(grant)

    def ended(self, ticket: Ticket) -> None:
        """The call is over; if nothing was reported of it, it tells nothing."""
        self._quota.ended()
        self._breaker.abandoned(ticket, self._clock.monotonic_ns())

    def state(self) -> AccountState:
        now_ns = self._clock.monotonic_ns()
        return AccountState(
            calls_in_flight=self._quota.calls_in_flight,
            speed=self._throttle.permille(now_ns) / PERMILLE,
            paused_s=max(0, self._throttle.paused_until_ns - now_ns) / SECOND_NS,
            breaker=self._breaker.state,
            available=self._quota.available(now_ns),
            held=self._quota.held(now_ns),
        )


def _limits(limits: ModelLimits) -> Limits:
    per_minute = {
        Dimension.REQUESTS: limits.requests_per_minute,
        Dimension.TOKENS: limits.tokens_per_minute,
        Dimension.INPUT_TOKENS: limits.input_tokens_per_minute,
        Dimension.OUTPUT_TOKENS: limits.output_tokens_per_minute,
    }
    return Limits({name: limit for name, limit in per_minute.items() if limit is not None}, limits.calls_in_flight)


def _throttle_policy(settings: LimiterSettings) -> ThrottlePolicy:
    return ThrottlePolicy(
        slowdown_permille=int(settings.slowdown * PERMILLE),
        floor_permille=max(1, int(settings.slowdown_floor * PERMILLE)),
        recovery_ns=_ns(settings.recovery_s),
        pause_ns=_ns(settings.pause_s),
        pause_ns_max=_ns(settings.pause_max_s),
    )


def _ns(seconds: float) -> int:
    return max(1, round(seconds * SECOND_NS))
