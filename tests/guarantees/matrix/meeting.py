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
from tests.support import http
from tests.support.conditions import until
from tests.support.cutting_proxy import CuttingProxy
from worker.app import Worker
from worker.embedded.llm_emulator.emulator import LlmEmulator
from worker.embedded.llm_emulator.faults import Fault as CallFault
from worker.telemetry import Metric

PATIENCE_S = 20.0
SILENCE_S = 0.3
"""A loop that turns answers in a thousandth of it."""

SHORT: Mapping[str, Mapping[str, object]] = {
    "postgres": {"save_timeout_s": 0.2, "statement_timeout_s": 0.3, "idle_in_transaction_timeout_s": 0.3},
    "settle": {"judge_deadline_s": 0.3},
    "outbox": {"publish_timeout_s": 0.3},
    "kafka": {"commit_timeout_ms": 200},
    "llm": {"call_timeout_s": 1.0},
}
"""Deadlines for what never returns."""

AT_THE_PROVIDER = {
    Fault.OWN: CallFault.MESSAGE_NOT_JSON,
    Fault.OUTAGE: CallFault.UNAVAILABLE,
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

CANNOT_WAIT = {Step.DECODE, Step.CREDIT, Step.ENCODE}


@dataclass(frozen=True)
class Outside:
    """A fault that is brought about outside the worker: `reached` returns when it has struck, `release` ends it."""

    reached: Callable[[], Awaitable[object]]
    release: Callable[[], None]


def sections_for(step: Step, fault: Fault) -> Mapping[str, Mapping[str, object]]:
    """The settings that the worker which meets the fault needs."""
    if step is Step.CALL and fault is Fault.OUTAGE:
        return {"llm": {"transient_failures_max": 1}}
    if fault is not Fault.HANG:
        return {}
    return {"http": {"enabled": True, "port": 0}} if step in CANNOT_WAIT else SHORT


async def meet(scene: Scene, step: Step, fault: Fault) -> Did:
    """Run a worker on the scene, which meets the fault."""
    part = scene.part.but(**sections_for(step, fault))
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
    if fault in AT_THE_PROVIDER:
        emulator.next_faults(AT_THE_PROVIDER[fault])
    else:
        emulator.hold()
    return Outside(lambda: until(lambda: emulator.in_flight, PATIENCE_S), emulator.release)


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
                raised = await _drained(worker)
                await outside.reached()
            await let_go(worker)
        return _seen(worker, raised, finished=fault is not Fault.STOP and raised is None)


async def _drained(worker: Worker) -> Exception | None:
    """What it raised instead, where it did not come so far."""
    try:
        await worker.run(asyncio.Event(), until_drained=True)
    except Exception as error:  # noqa: BLE001  # told, and compared with what the cell expects
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
    attempts_used = worker.telemetry.registry.get_sample_value(f"{Metric.ATTEMPTS_FAILED.value.name}_total")
    assert attempts_used is not None
    return Did(
        finished=finished,
        attempts_used=int(attempts_used),
        waited_out=worker.telemetry.outage_waits > 0,
        commits_failed=worker.consume.state().commits_failed > 0,
        raised=raised is not None and "struck" in _told(raised),
    )


def _told(error: BaseException) -> str:
    """With what it groups."""
    return "".join(traceback.format_exception(error))


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
