"""The time a limiter lives by."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from worker.core.buckets import SECOND_NS

TIMER_S_MIN: Final = 0.001
"""uvloop counts in milliseconds; a shorter timer would only spin."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Monotonic time, time of day, and being called later. A simulation brings its own."""

    def monotonic_ns(self) -> int: ...

    def wall_s(self) -> float: ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer: ...


class LoopClock:
    """The running event loop's own time, so that a wait and what it waits for never disagree."""

    def monotonic_ns(self) -> int:
        return round(asyncio.get_running_loop().time() * SECOND_NS)

    def wall_s(self) -> float:
        return time.time()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(delay_s, TIMER_S_MIN), callback)
