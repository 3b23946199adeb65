"""The waiting line before one provider and model.

Calls are granted strictly in the order of their answers' admission. A large call at the head is never passed by small
ones behind it: while it waits for its tokens they wait too, at most as long as the limit takes to refill its size.
That costs the small ones time, and nobody throughput: what refills meanwhile is what the large one takes.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count

from schemas.dead_letter import DeadLetterReason
from worker.core.breaker import CircuitBreaker
from worker.core.buckets import SECOND_NS
from worker.core.charging import ChargingRule, Dimension, Estimate, Reservation
from worker.core.quota import TooLarge
from worker.errors import PermanentError
from worker.limiter.account import Account, AccountState
from worker.limiter.clock import Clock, Timer
from worker.limiter.slot import Slot
from worker.llm_ports import ProviderDownError
from worker.settings import LimiterSettings


class CallTooLargeError(PermanentError):
    """One call exceeds a configured limit per minute by itself: split it, or raise the limit; waiting is no use."""

    def __init__(self, too_large: TooLarge) -> None:
        super().__init__(
            DeadLetterReason.TOO_LARGE,
            f"one call takes {too_large.tokens} {too_large.dimension.value}, the limit is {too_large.limit} a minute",
        )
        self.too_large = too_large


@dataclass(frozen=True, slots=True)
class LimiterState:
    """A snapshot for metrics."""

    waiting: int
    account: AccountState


@dataclass(order=True, slots=True)
class _Waiter:
    """A call in line: older answers first, calls of one answer in the order they came."""

    admission: int
    sequence: int
    reservations: Mapping[Dimension, Reservation] = field(compare=False)
    granted: asyncio.Future[Slot] = field(compare=False)
    since_ns: int = field(compare=False)
    patience: Timer | None = field(default=None, compare=False)
    reported: bool = field(default=False, compare=False)


class Limiter:
    """One provider and model; `breaker` is shared by the models of the provider. Bound to one event loop.

    `on_long_wait` is told, once for each call, when it has waited for `long_wait_s`.
    """

    def __init__(
        self,
        *,
        model: str,
        settings: LimiterSettings,
        rule: ChargingRule,
        breaker: CircuitBreaker,
        clock: Clock,
        on_long_wait: Callable[[float], None] = lambda _waited_s: None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._account = Account(
            limits=settings.of_model(model), settings=settings, rule=rule, breaker=breaker, clock=clock, jitter=jitter
        )
        self._settings = settings
        self._rule = rule
        self._clock = clock
        self._on_long_wait = on_long_wait
        self._line: list[_Waiter] = []
        self._sequence = count()
        self._timer: Timer | None = None

    @asynccontextmanager
    async def slot(self, *, admission: int, estimate: Estimate) -> AsyncIterator[Slot]:
        """Waits until the call may be made; whatever happens inside, leaving gives back or charges all it reserved.

        `admission` is the sequence number of the call's answer: lower ones go first.

        Raises:
            CallTooLargeError: the call can never be made.
            ProviderDownError: the provider is down, or the wait passed its limit; neither is the answer's fault.
        """
        too_large = self._account.too_large(estimate)
        if too_large is not None:
            raise CallTooLargeError(too_large)
        slot = await self._acquire(admission, self._rule.reserve(estimate))
        try:
            yield slot
        finally:
            slot.leave()

    def state(self) -> LimiterState:
        waiting = sum(not waiter.granted.done() for waiter in self._line)
        return LimiterState(waiting=waiting, account=self._account.state())

    async def _acquire(self, admission: int, reservations: Mapping[Dimension, Reservation]) -> Slot:
        granted: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(admission, next(self._sequence), reservations, granted, self._clock.monotonic_ns())
        heappush(self._line, waiter)
        self._grant_in_order()
        if not granted.done():
            self._watch(waiter)
        try:
            return await granted
        except (asyncio.CancelledError, GeneratorExit):
            self._withdraw(waiter)
            raise
        finally:
            if waiter.patience is not None:
                waiter.patience.cancel()

    def _grant_in_order(self) -> None:
        """Grant from the head of the line for as long as it is ready, and come back when it will be."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._line:
            head = self._line[0]
            if head.granted.done():
                heappop(self._line)
                continue
            down_s = self._account.down_for_s()
            if down_s > 0:
                self._turn_everyone_away(down_s)
                return
            ready_s = self._account.ready_in_s(head.reservations)
            if ready_s is None:
                return
            if ready_s > 0:
                self._timer = self._clock.call_later(ready_s, self._grant_in_order)
                return
            self._grant(heappop(self._line))

    def _grant(self, waiter: _Waiter) -> None:
        grant, ticket = self._account.grant(waiter.reservations)
        waiter.granted.set_result(
            Slot(
                account=self._account,
                grant=grant,
                ticket=ticket,
                waited_s=self._waited_s(waiter),
                on_change=self._grant_in_order,
            )
        )

    def _turn_everyone_away(self, down_s: float) -> None:
        line, self._line = self._line, []
        for waiter in line:
            if not waiter.granted.done():
                waiter.granted.set_exception(ProviderDownError("the LLM provider is down", retry_after_s=down_s))

    def _withdraw(self, waiter: _Waiter) -> None:
        """The caller was cancelled: while it stood in line, or after it was granted and before it woke."""
        granted = waiter.granted
        if granted.cancel() or granted.cancelled() or granted.exception() is not None:
            self._grant_in_order()
        else:
            granted.result().leave()

    def _watch(self, waiter: _Waiter) -> None:
        """Tell of a long wait, and end one that is too long."""
        if waiter.granted.done():
            return
        waited_s = self._waited_s(waiter)
        if waited_s >= self._settings.long_wait_s and not waiter.reported:
            waiter.reported = True
            self._on_long_wait(waited_s)
        if waited_s >= self._settings.wait_max_s:
            problem = f"the rate limits let no call through for {self._settings.wait_max_s:g} s"
            waiter.granted.set_exception(ProviderDownError(problem, retry_after_s=self._settings.pause_s))
            self._grant_in_order()
            return
        look_again_s = self._settings.wait_max_s if waiter.reported else self._settings.long_wait_s
        delay_s = min(look_again_s, self._settings.wait_max_s) - waited_s
        waiter.patience = self._clock.call_later(delay_s, partial(self._watch, waiter))

    def _waited_s(self, waiter: _Waiter) -> float:
        return (self._clock.monotonic_ns() - waiter.since_ns) / SECOND_NS
