"""An event loop on a virtual clock that several simulated processes share, each of which can be halted as a whole."""

import asyncio
import contextvars
import heapq
import random
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count
from typing import Any

from tests.support.virtual_time import TICK_S, TURNS_WITHOUT_TIME_MAX, NothingWillHappenError


class ProcessState(Enum):
    RUNNING = auto()
    FROZEN = auto()
    DEAD = auto()


@dataclass(eq=False)
class Process:
    """One worker's operating-system process; `held` is what would have run since it was halted."""

    name: str
    loop: "SimulationLoop"
    state: ProcessState = ProcessState.RUNNING
    was_killed: bool = False
    was_frozen: bool = False
    halts: int = 0
    held: list[asyncio.Handle] = field(default_factory=list)
    held_timers: list[asyncio.TimerHandle] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context = contextvars.copy_context()
        self.context.run(OWNER.set, self)

    @property
    def is_halted(self) -> bool:
        return self.state is not ProcessState.RUNNING

    def run_in(self, act: Callable[[], None]) -> None:
        """Something reaches the process from outside: done in there, when it runs again."""
        self.loop.call_soon(act, context=self.context)


OWNER: contextvars.ContextVar[Process | None] = contextvars.ContextVar("OWNER", default=None)
"""Whose code is running; None for the servers and the simulation itself."""


class OwnedTask(asyncio.Task[Any]):
    """A task hashed by its number: sets of tasks are cancelled in the same order on every run."""

    def __init__(self, number: int, coroutine: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = number  # first, as the base class puts itself into a set
        context = options.get("context")
        self.owner = OWNER.get() if context is None else context.get(OWNER)
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number


class _Turns(selectors.DefaultSelector):
    """Asked between two turns of the loop; nothing real is ever waited for."""

    loop: "SimulationLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.loop.between_turns()
        return []


class SimulationLoop(asyncio.SelectorEventLoop):
    """Time jumps to the next timer; what is ready together runs in an order that `rng` chooses, where it is given one.

    Halting takes place between two turns: every task of a process is then at an await.
    """

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        self.now_s = 0.0
        self.shuffles_with: random.Random | None = None
        self.turns = 0
        self._turns_without_time = 0
        self._between_turns: list[Callable[[], None]] = []
        self._numbers = count()
        turns = _Turns()
        turns.loop = self
        super().__init__(turns)
        self.set_task_factory(self._numbered)

    def time(self) -> float:
        return self.now_s

    def _numbered(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> OwnedTask:
        return OwnedTask(next(self._numbers), coroutine, loop=loop, **options)

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        owner = context.get(OWNER)
        if owner is None or not owner.is_halted:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        owner.held.append(handle)
        return handle

    # Between turns

    def before_next_turn(self, act: Callable[[], None]) -> None:
        self._between_turns.append(act)

    def between_turns(self) -> None:
        self.turns += 1
        acts, self._between_turns = self._between_turns, []
        for act in acts:
            act()
        if not self._ready:
            self._jump()
            return
        if self.shuffles_with is not None and len(self._ready) > 1:
            ready = list(self._ready)
            self.shuffles_with.shuffle(ready)
            self._ready.clear()
            self._ready.extend(ready)
        self._turns_without_time += 1
        if self._turns_without_time >= TURNS_WITHOUT_TIME_MAX:
            self._turns_without_time = 0
            self.now_s += TICK_S

    def _jump(self) -> None:
        self._turns_without_time = 0
        while self._scheduled and self._scheduled[0].cancelled():
            heapq.heappop(self._scheduled)
        if not self._scheduled:
            raise NothingWillHappenError
        self.now_s = max(self.now_s, self._scheduled[0].when())

    def halt(self, process: Process, state: ProcessState) -> None:
        """Nothing of the process runs from here on. Only between turns."""
        process.state = state
        process.halts += 1
        process.was_killed |= state is ProcessState.DEAD
        process.was_frozen |= state is ProcessState.FROZEN
        mine = [handle for handle in self._ready if _owner(handle) is process]
        others = [handle for handle in self._ready if _owner(handle) is not process]
        process.held += mine
        self._ready.clear()
        self._ready.extend(others)
        process.held_timers += [timer for timer in self._scheduled if _owner(timer) is process]
        self._scheduled[:] = [timer for timer in self._scheduled if _owner(timer) is not process]
        heapq.heapify(self._scheduled)

    def let_run(self, process: Process) -> None:
        """All that was held runs now, late. Only between turns."""
        process.state = ProcessState.RUNNING
        self._ready.extend(handle for handle in process.held if not handle.cancelled())
        for timer in process.held_timers:
            heapq.heappush(self._scheduled, timer)
        process.held, process.held_timers = [], []


def _owner(handle: asyncio.Handle) -> Process | None:
    context: contextvars.Context = handle._context  # type: ignore[attr-defined]
    return context.get(OWNER)
