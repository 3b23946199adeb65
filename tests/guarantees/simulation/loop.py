"""An event loop on a virtual clock that several simulated processes share, each of which can be halted as a whole."""

import asyncio
import contextvars
import heapq
import random
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


Timers = list[tuple[float, int, asyncio.TimerHandle]]
"""A heap; timers of one moment are in the order in which they were set."""


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
    held_timers: Timers = field(default_factory=list)

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
        context: contextvars.Context | None = options.get("context")
        self.owner = OWNER.get() if context is None else context.get(OWNER)
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number


class SimulationLoop(asyncio.SelectorEventLoop):
    """Time jumps to the next timer, and nothing real is waited for.

    What is ready together runs in an order that `shuffles_with` chooses, where it is given. Halting takes place between
    two turns: every task of a process is then at an await.
    """

    _ready: deque[asyncio.Handle]

    def __init__(self) -> None:
        self.now_s = 0.0
        self.turns = 0
        self.shuffles_with: random.Random | None = None
        self._timers: Timers = []
        self._turns_without_time = 0
        self._between_turns: list[Callable[[], None]] = []
        self._numbers = count()
        super().__init__()
        self.set_task_factory(self._numbered)

    def time(self) -> float:
        return self.now_s

    def _numbered(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> OwnedTask:
        return OwnedTask(next(self._numbers), coroutine, loop=loop, **options)

    def call_soon(  # type: ignore[override]  # what the callback takes is typed nowhere in here
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        owner = context.get(OWNER)
        if owner is None or owner.state is ProcessState.RUNNING:
            self._ready.append(handle)
        else:
            owner.held.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # the same
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def before_next_turn(self, act: Callable[[], None]) -> None:
        self._between_turns.append(act)

    def _run_once(self) -> None:
        """asyncio's turn without its select."""
        self.turns += 1
        acts, self._between_turns = self._between_turns, []
        for act in acts:
            act()
        ready = self._ready
        self._pass_time()
        while self._timers and self._timers[0][0] <= self.now_s:
            ready.append(heapq.heappop(self._timers)[2])
        if self.shuffles_with is not None and len(ready) > 1:
            mixed = list(ready)
            self.shuffles_with.shuffle(mixed)
            ready.clear()
            ready.extend(mixed)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()  # as the loop it stands in for does

    def _pass_time(self) -> None:
        if self._ready or self._between_turns:
            self._turns_without_time += 1
            if self._turns_without_time < TURNS_WITHOUT_TIME_MAX:
                return
            self.now_s += TICK_S
        else:
            while self._timers and self._timers[0][2].cancelled():
                heapq.heappop(self._timers)
            if not self._timers:
                raise NothingWillHappenError
            self.now_s = max(self.now_s, self._timers[0][0])
        self._turns_without_time = 0

    # Only between turns

    def halt(self, process: Process, state: ProcessState) -> None:
        """Nothing of the process runs from here on."""
        process.state = state
        process.halts += 1
        process.was_killed |= state is ProcessState.DEAD
        process.was_frozen |= state is ProcessState.FROZEN
        process.held += [handle for handle in self._ready if _owner(handle) is process]
        others = [handle for handle in self._ready if _owner(handle) is not process]
        self._ready.clear()
        self._ready.extend(others)
        process.held_timers += [timer for timer in self._timers if _owner(timer[2]) is process]
        self._timers = [timer for timer in self._timers if _owner(timer[2]) is not process]
        heapq.heapify(self._timers)

    def let_run(self, process: Process) -> None:
        """All that was held runs now, late."""
        process.state = ProcessState.RUNNING
        self._ready.extend(process.held)
        for timer in process.held_timers:
            heapq.heappush(self._timers, timer)
        process.held, process.held_timers = [], []


def _owner(handle: asyncio.Handle) -> Process | None:
    context: contextvars.Context = handle._context  # type: ignore[attr-defined]  # set by every loop
    return context.get(OWNER)
