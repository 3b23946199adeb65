"""Where a wired worker takes each step, and how a fault is put there: it strikes once, whoever comes first."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, assert_never

from aiokafka.errors import KafkaConnectionError

from tests.guarantees.matrix.cells import Fault, Step
from worker.app import Worker
from worker.errors import RetryableError, UnavailableError
from worker.ports import OutboxRow

ON_THE_WIRE = {
    Step.FIND: b"FROM answers JOIN unnest",
    Step.LOOK: b"SELECT llm_calls.call_key, llm_calls.call_id",
    Step.INTENT: b"INSERT INTO llm_calls ",
    Step.RESPONSE: b"given_response",
    Step.USAGE: b"sum(llm_calls.input_tokens)",
    Step.SAVE: b"INSERT INTO answers ",
    Step.DEAD_LETTER: b"INSERT INTO dead_letters ",
    Step.CLAIM: b"FROM outbox",
    Step.DELETE: b"DELETE FROM outbox",
}
"""Words of the statement by which a proxy knows the step's transaction."""


class Strike:
    """A fault waiting at a step."""

    def __init__(self, fault: Fault, *, on_kill: Callable[[], None], error: Exception | None = None) -> None:
        self._fault = fault
        self._on_kill = on_kill
        self._error = error
        self._struck = False
        self.reached = asyncio.Event()

    def first(self) -> bool:
        """Whether this is the time to strike."""
        first, self._struck = not self._struck, True
        return first

    def here(self) -> None:
        """In code that cannot wait.

        Raises:
            Exception: the fault's.
        """
        self.reached.set()
        match self._fault:
            case Fault.OWN:
                raise RetryableError("struck")
            case Fault.OUTAGE | Fault.LOST_BEFORE | Fault.LOST_AFTER:
                raise self._error or UnavailableError("struck")
            case Fault.BUG:
                raise RuntimeError("struck")
            case Fault.KILL | Fault.HANG:
                self._on_kill()
            case Fault.STOP | Fault.KILL_BEFORE | Fault.KILL_AFTER:
                raise AssertionError(f"{self._fault} is not put at a seam that cannot wait")
            case _:
                assert_never(self._fault)

    async def waiting(self) -> None:
        """In code that can be cancelled."""
        if self._fault in {Fault.HANG, Fault.STOP}:
            self.reached.set()
            await asyncio.Event().wait()
        self.here()

    @property
    def is_after(self) -> bool:
        """The step is taken, and only then the fault strikes."""
        return self._fault is Fault.LOST_AFTER


def strike(worker: Worker, step: Step, fault: Fault, *, on_kill: Callable[[], None] = lambda: None) -> Strike:
    """Put the fault at the step of this worker; `on_kill` ends, or blocks, the process where that is the fault."""
    if step is Step.COMMIT:
        return _strike_commit(worker, fault, on_kill)
    struck = Strike(fault, on_kill=on_kill)
    owner_of, name = SEAMS[step]
    owner = owner_of(worker)
    original = getattr(owner, name)
    match step:
        case Step.DECODE | Step.CREDIT | Step.ENCODE:
            replacement = _sync(original, struck)
        case Step.CLAIM | Step.DELETE:
            replacement = _claiming(original, struck, at_end=step is Step.DELETE)
        case _:
            replacement = _async(original, struck)
    setattr(owner, name, replacement)
    return struck


def _process(worker: Worker) -> Any:
    return worker.consume._settle._process  # type: ignore[attr-defined]  # of Settle


def _llm_judge(worker: Worker) -> Any:
    return _process(worker)._judge._judge._judge


SEAMS: Mapping[Step, tuple[Callable[[Worker], Any], str]] = {
    Step.DECODE: (_process, "_decode"),
    Step.FIND: (lambda worker: worker.store, "find"),
    Step.JUDGE: (lambda worker: _process(worker)._judge._judge, "judge"),
    Step.LOOK: (lambda worker: _llm_judge(worker)._journal, "responses"),
    Step.INTENT: (lambda worker: _llm_judge(worker)._journal, "open"),
    Step.CALL: (lambda worker: _llm_judge(worker)._calls._purchasing._provider, "complete"),
    Step.RESPONSE: (lambda worker: _llm_judge(worker)._journal, "close"),
    Step.USAGE: (lambda worker: _llm_judge(worker)._journal, "usage_of"),
    Step.CREDIT: (_process, "_attribute"),
    Step.ENCODE: (_process, "_encode"),
    Step.SAVE: (lambda worker: worker.store, "save"),
    Step.DEAD_LETTER: (lambda worker: worker.store, "save_dead_letter"),
    Step.CLAIM: (lambda worker: worker.store, "claim"),
    Step.PUBLISH: (lambda worker: worker.relay._publisher, "publish"),
    Step.DELETE: (lambda worker: worker.store, "claim"),
}
"""The object and its attribute by which the step is taken."""


def _sync(original: Callable[..., Any], struck: Strike) -> Callable[..., Any]:
    def replacement(*arguments: Any) -> Any:
        if struck.first():
            struck.here()
        return original(*arguments)

    return replacement


def _async(original: Callable[..., Any], struck: Strike) -> Callable[..., Any]:
    async def replacement(*arguments: Any, **named: Any) -> Any:
        if not struck.first():
            return await original(*arguments, **named)
        if struck.is_after:
            await original(*arguments, **named)
        await struck.waiting()
        raise AssertionError("a strike neither returns nor lets go")

    return replacement


Claim = Callable[[int], AbstractAsyncContextManager[Sequence[OutboxRow]]]


def _claiming(original: Claim, struck: Strike, *, at_end: bool) -> Claim:
    """A claim of nothing is no step of anybody's line."""

    @asynccontextmanager
    async def replacement(rows_max: int) -> AsyncIterator[Sequence[OutboxRow]]:
        async with original(rows_max) as rows:
            if rows and not at_end and struck.first():
                await struck.waiting()
            yield rows
            if rows and at_end and struck.first():
                await struck.waiting()

    return replacement


def _strike_commit(worker: Worker, fault: Fault, on_kill: Callable[[], None]) -> Strike:
    """At the Kafka client, which is there once the stream is started: deadline and translation are the adapter's."""
    struck = Strike(fault, on_kill=on_kill, error=KafkaConnectionError("struck"))
    stream: Any = worker.consume._stream
    start = stream.start

    async def starting(listener: object) -> None:
        await start(listener)
        client = stream._client
        client.commit = _async(client.commit, struck)

    stream.start = starting
    return struck
