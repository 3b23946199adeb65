"""An event loop whose clock jumps to the next timer: hours of waiting in no time, the same on every run."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from worker.core.buckets import SECOND_NS

T = TypeVar("T")
TURNS_WITHOUT_TIME_MAX = 1_000
TICK_S = 1e-6
"""Real time goes on while a machine is busy; code that spins until it does would spin for ever."""


class NothingWillHappenError(AssertionError):
    """Every task waits, and no timer is set: a deadlock."""


class _JumpingSelector(selectors.DefaultSelector):
    """Finds what is ready; where the loop would sleep, time jumps instead."""

    now_s = 0.0
    _turns_without_time = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise NothingWillHappenError
        self._turns_without_time = 0 if timeout > 0 else self._turns_without_time + 1
        self.now_s += max(timeout, 0) or self._turns_without_time // TURNS_WITHOUT_TIME_MAX * TICK_S
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def time_ns(self) -> int:
        return round(self.time() * SECOND_NS)


def run_in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """What `asyncio.run` does, on a clock of its own that starts at 0."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
