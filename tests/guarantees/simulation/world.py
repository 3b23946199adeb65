"""What all simulated parts share: the seeded generator, the network between processes and servers, the trace."""

import asyncio
import contextvars
import hashlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from tests.guarantees.simulation.loop import OWNER, Process, ProcessState, SimulationLoop
from worker.errors import UnavailableError, WorkerError

T = TypeVar("T")


class Guarantee(StrEnum):
    """What a run may break."""

    EVERY_EVENT_TERMINAL = "every record ends in the one outcome that its content allows, and in one only"
    PERSISTED_EXACTLY_ONCE = "an answer is stored once"
    NEVER_COMMITTED_PAST_UNFINISHED = "no offset is committed past a record without an outcome"
    COMMITS_NEVER_MOVE_BACK = "a committed offset never moves back"
    CREDIT_CONSERVED = "credit adds up to the utility, shares to one"
    COST_CONSERVED = "the bill is the journal, and nothing is paid twice"
    BUDGETS_KEPT = "no budget is passed"
    LIMITER_KEEPS_THE_ACCOUNT = "the provider's account refuses no call"
    OUTBOX_DELIVERED = "all that is stored is published, and nothing else"
    DEAD_LETTERS_INTACT = "dead letters are what was produced"
    STAYS_A_MEMBER = "the group is polled in time, whatever is down"
    NOTHING_HANGS = "everything ends"
    NOTHING_LEFT = "a worker that stops leaves nothing behind"
    NO_BUGS = "nothing is raised that nobody expects"


@dataclass(eq=False)
class Outage:
    """Something that fails for a while, and works again when the last of its outages is over."""

    ends_s: float = -1.0

    def begin(self, world: "World", lasts_s: float) -> None:
        self.ends_s = max(self.ends_s, world.loop.now_s + lasts_s)

    def is_on(self, world: "World") -> bool:
        return world.loop.now_s < self.ends_s


@dataclass(eq=False)
class Server:
    """Whoever answers requests; `loses` is the share of requests, and again of replies, that never arrive."""

    name: str
    travel_s: float
    loses: float = 0.0
    in_order: bool = False
    outage: Outage = field(default_factory=Outage)

    def __post_init__(self) -> None:
        self.last_arrival_s: dict[Process | None, float] = {}


class World:
    """One run. Servers act in the world's own context, so that they go on when a worker's process is halted."""

    def __init__(self, rng: random.Random, loop: SimulationLoop) -> None:
        self.rng = rng
        self.loop = loop
        self.is_over = False
        self.trace: list[tuple[Any, ...]] = []
        self.violations: list[tuple[Guarantee, str]] = []
        self.seen: Counter[str] = Counter()
        self.at_event: dict[int, Callable[[], None]] = {}
        self._context = contextvars.copy_context()

    # What happened

    def note(self, event: str, *facts: object) -> None:
        """A line of the trace; `seen` counts events by name."""
        owner = OWNER.get()
        self.trace.append((self.loop.now_s, None if owner is None else owner.name, event, *facts))
        self.seen[event] += 1
        act = self.at_event.pop(len(self.trace), None)
        if act is not None:
            self.loop.before_next_turn(act)

    def violate(self, guarantee: Guarantee, problem: str) -> None:
        self.violations.append((guarantee, problem))
        self.note("VIOLATION", guarantee.name, problem)

    def digest(self) -> str:
        return hashlib.sha256("\n".join(map(repr, self.trace)).encode()).hexdigest()

    # Chance

    def chance(self, share: float) -> bool:
        return share > 0 and self.rng.random() < share

    def travel_s(self, server: Server) -> float:
        """Mostly short, now and then none at all, seldom a hundred times as long."""
        kind = self.rng.random()
        if kind < 0.1:
            return 0.0
        return self.rng.random() * server.travel_s * (100 if kind > 0.98 else 1)

    # The network

    def later(self, delay_s: float, act: Callable[..., object], *args: object) -> None:
        """The world does something by itself."""
        self.loop.call_later(delay_s, act, *args, context=self._context)

    def between_turns_after(self, delay_s: float, act: Callable[[], None]) -> None:
        self.later(delay_s, self.loop.before_next_turn, act)

    async def ask(self, server: Server, serve: Callable[[], T]) -> T:
        """What `serve` returns or raises, at the server, once; a cancelled caller does not take the request back.

        Raises:
            UnavailableError: the server is down, or the request or its reply was lost: it may have been served.
        """
        if self.is_over:
            raise asyncio.CancelledError
        reply: asyncio.Future[T | WorkerError] = self.loop.create_future()
        self.later(self._until_arrival_s(server), self._arrive, OWNER.get(), server, serve, reply)
        answer = await reply
        if isinstance(answer, WorkerError):
            raise answer
        return answer

    def _until_arrival_s(self, server: Server) -> float:
        travel_s = self.travel_s(server)
        if not server.in_order:
            return travel_s
        last_s = server.last_arrival_s.get(OWNER.get(), 0.0)
        arrival_s = max(self.loop.now_s + travel_s, last_s + 1e-6)
        server.last_arrival_s[OWNER.get()] = arrival_s
        return arrival_s - self.loop.now_s

    def _arrive(
        self, process: Process | None, server: Server, serve: Callable[[], object], reply: "asyncio.Future[Any]"
    ) -> None:
        if process is not None and process.state is ProcessState.DEAD and self.chance(0.5):
            self.note("request.died_with_its_process", process.name, server.name)
            return
        answer: object
        if server.outage.is_on(self) or self.chance(server.loses):
            self.note("request.lost", server.name)
            answer = UnavailableError(f"{server.name}: no connection")
        else:
            try:
                answer = serve()
            except WorkerError as error:
                answer = error
            if self.chance(server.loses):
                self.note("reply.lost", server.name)
                answer = UnavailableError(f"{server.name}: connection lost, outcome unknown")
        self.later(self.travel_s(server), _answer, reply, answer)


def _answer(reply: "asyncio.Future[object]", answer: object) -> None:
    if not reply.done():
        reply.set_result(answer)


def told(line: tuple[Any, ...]) -> str:
    """A line of the trace for people."""
    at_s, owner, event, *facts = line
    return f"{at_s:10.4f}  {owner or '-':<6} {event:<28} {' '.join(map(str, facts))}"
