"""A worker meets a fault at a step: how the fault is brought about, and what the worker did."""

import asyncio
import signal
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from tests.guarantees.matrix.cells import Did, Fault, Step
from tests.guarantees.matrix.dying import worker_process
from tests.guarantees.matrix.scene import Part, Scene, let_go, watched_worker
from tests.guarantees.matrix.seams import ON_THE_WIRE, strike
from tests.support import http, lines
from tests.support.conditions import until, until_equal
from tests.support.cutting_proxy import CuttingProxy
from worker.app import Worker
from worker.embedded.llm_emulator.emulator import LlmEmulator
from worker.embedded.llm_emulator.faults import Fault as CallFault
from worker.telemetry import Metric

UNPUBLISHED = (
    "SELECT $1 - (SELECT count(*) FROM answers) - (SELECT count(*) FROM dead_letters) + (SELECT count(*) FROM outbox)"
)
"""Of so many records."""
PATIENCE_S = 20.0
SILENCE_S = 0.3
"""A loop that turns answers in a thousandth of it."""

Sections = Mapping[str, Mapping[str, object]]

IMPATIENT_DATABASE: Sections = {
    "postgres": {"save_timeout_s": 0.3, "statement_timeout_s": 0.3, "idle_in_transaction_timeout_s": 0.3}
}
OF_THE_RELAY = {Step.CLAIM, Step.PUBLISH, Step.DELETE}
CANNOT_WAIT = {Step.DECODE, Step.CREDIT, Step.ENCODE}
SERVED: Sections = {"http": {"enabled": True, "port": 0}}
"""Nothing in the process ends code that does not wait: who looks at it over HTTP does."""

IMPATIENT: Mapping[Step, Sections] = {
    Step.JUDGE: {"settle": {"judge_deadline_s": 0.5}},
    Step.CALL: {"llm": {"call_timeout_s": 1.0}},
    Step.PUBLISH: {"outbox": {"publish_timeout_s": 0.5}, **IMPATIENT_DATABASE},
    Step.COMMIT: {"kafka": {"commit_timeout_ms": 300}},
    **dict.fromkeys(ON_THE_WIRE, IMPATIENT_DATABASE),
    **dict.fromkeys(CANNOT_WAIT, SERVED),
}
"""What ends a step that never returns, each short."""

AT_THE_PROVIDER = {
    Fault.OWN: CallFault.FINISH_UNHEARD_OF,
    Fault.OUTAGE: CallFault.INSUFFICIENT_QUOTA,
    Fault.HANG: CallFault.SILENCE,
    Fault.LOST_BEFORE: CallFault.RESET_BEFORE_WORK,
    Fault.LOST_AFTER: CallFault.RESET_AFTER_WORK,
}
ON_A_CONNECTION = {
    Fault.HANG,
    Fault.STOP,
    Fault.LOST_BEFORE,
    Fault.LOST_AFTER,
    Fault.KILL_BEFORE,
    Fault.KILL_AFTER,
}


@dataclass(frozen=True)
class Outside:
    """A fault that is brought about outside the worker: `reached` returns when it has struck, `release` ends it."""

    reached: Callable[[], Awaitable[object]]
    release: Callable[[], None]


async def meet(scene: Scene, step: Step, fault: Fault) -> Did:
    """Run a worker on the scene, which meets the fault."""
    part = scene.part.but(**IMPATIENT[step]) if fault is Fault.HANG else scene.part
    if step in ON_THE_WIRE and fault in ON_A_CONNECTION:
        async with proxy_for(part.dsn, step, fault) as proxy:
            through = part.but(postgres={"dsn": proxy.dsn})
            return await _run(through, step, fault, Outside(proxy.met.wait, proxy.release))
    if step is Step.CALL and scene.emulator is not None and fault is not Fault.BUG:
        return await _run(part, step, fault, _at_the_provider(scene.emulator, fault))
    return await _run(part, step, fault, None)


def proxy_for(dsn: str, step: Step, fault: Fault) -> CuttingProxy:
    statement, commit = ON_THE_WIRE[step], b"COMMIT"
    # A claim of nothing commits as well: it is met at its statement.
    after, cut_at = (b"", statement) if step is Step.CLAIM else (statement, commit)
    return CuttingProxy(
        dsn,
        cut_at=cut_at,
        after=after,
        forward=fault in {Fault.LOST_AFTER, Fault.KILL_AFTER},
        holds=fault not in {Fault.LOST_BEFORE, Fault.LOST_AFTER},
    )


def _at_the_provider(emulator: LlmEmulator, fault: Fault) -> Outside:
    if fault not in AT_THE_PROVIDER:
        emulator.hold()
        return Outside(lambda: until(lambda: emulator.in_flight, PATIENCE_S), emulator.release)
    emulator.next_faults(AT_THE_PROVIDER[fault])
    return Outside(lambda: until(lambda: emulator.requests, PATIENCE_S), lambda: None)


async def _run(part: Part, step: Step, fault: Fault, outside: Outside | None) -> Did:
    if fault.kills:
        return await _killed(part, step, fault, outside)
    if fault is Fault.HANG and step in CANNOT_WAIT:
        return await _stood_still(part, step)
    async with watched_worker(part) as worker:
        if outside is None:
            struck = strike(worker, step, fault)
            outside = Outside(struck.reached.wait, lambda: None)
        raised = None
        async with asyncio.timeout(PATIENCE_S):
            if fault is Fault.STOP:
                await _stopped(worker, outside)
            else:
                raised = await _drained(worker, part, step)
                await outside.reached()
            await let_go(worker)
        return _seen(worker, raised, finished=fault is not Fault.STOP and raised is None)


async def _drained(worker: Worker, part: Part, step: Step) -> Exception | None:
    """What it raised instead, where it did not come so far.

    A worker that ends cancels its relay, and what hangs there would look as if it did not: so everything is to be
    published before.
    """
    stop = asyncio.Event()

    async def stop_when_published() -> None:
        await until_equal(lambda: lines.value(part.dsn, UNPUBLISHED, len(part.answer_ids)), 0)
        stop.set()

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(stop_when_published()) if step in OF_THE_RELAY else None
        try:
            await worker.run(stop, until_drained=waiting is None)
        except Exception as error:  # noqa: BLE001  # told, and compared with what the cell expects
            if waiting is not None:
                waiting.cancel()
            return error
    return None


async def _stopped(worker: Worker, outside: Outside) -> None:
    """Asked to stop while it is in the step, which goes on only when the worker has ended."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(worker.run(stop))
        await outside.reached()
        stop.set()
        await running
    outside.release()


def _seen(worker: Worker, raised: Exception | None, *, finished: bool) -> Did:
    if raised is not None and "struck" not in "".join(traceback.format_exception(raised)):
        raise raised
    attempts_used = worker.telemetry.registry.get_sample_value(f"{Metric.ATTEMPTS_FAILED.value.name}_total")
    assert attempts_used is not None
    return Did(
        finished=finished,
        attempts_used=int(attempts_used),
        waited_out=worker.telemetry.outage_waits > 0,
        commits_failed=worker.consume.state().commits_failed > 0,
        raised=raised is not None,
    )


async def _killed(part: Part, step: Step, fault: Fault, outside: Outside | None) -> Did:
    with worker_process(part, step, fault) as (process, _):
        if outside is not None:
            async with asyncio.timeout(PATIENCE_S):
                await outside.reached()
            process.kill()
        await until(lambda: process.exitcode is not None, PATIENCE_S)
        died = process.exitcode == -signal.SIGKILL
    if outside is not None:
        outside.release()
    return Did(died=died)


async def _stood_still(part: Part, step: Step) -> Did:
    """Neither a task nor a timer of a loop that stands still can end it; whoever looks at it from outside can."""
    with worker_process(part, step, Fault.HANG) as (_, told):
        assert await asyncio.to_thread(told.poll, PATIENCE_S), "it never came to the step"
        port = told.recv()
        try:
            async with asyncio.timeout(SILENCE_S):
                await http.request(port, "/livez")
        except TimeoutError:
            return Did(stood_still=True)
    return Did()
