"""A worker in a process of its own, which ends, or stands still, exactly at a step."""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import uvloop

from tests.guarantees.matrix.cells import Fault, Step
from tests.guarantees.matrix.scene import Part, watched_worker
from tests.guarantees.matrix.seams import strike
from worker.settings import LogSettings
from worker.telemetry import configure_logging

# One process imports everything, once, and is copied for each cell.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["pytest", "worker.adapters.llm.open_provider", __name__])


@contextmanager
def worker_process(part: Part, step: Step, fault: Fault) -> Iterator[tuple[BaseProcess, Connection]]:
    """The process, and what it tells: of a loop that stands still, the port at which it would answer."""
    told, tell = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=run_to_its_end, args=(part, step, fault, tell))
    process.start()
    tell.close()
    try:
        yield process, told
    finally:
        process.kill()
        process.join()
        process.close()
        told.close()


def run_to_its_end(part: Part, step: Step, fault: Fault, tell: Connection) -> None:
    """In the child: ends by SIGKILL at the step, or blocks there; a clean end means that it never came there."""
    configure_logging(LogSettings(level="error"))
    uvloop.run(_run(part, step, fault, tell))


async def _run(part: Part, step: Step, fault: Fault, tell: Connection) -> None:
    async with watched_worker(part) as worker:

        def end() -> None:
            if fault is Fault.HANG:
                tell.send(worker.observing.port)
                threading.Event().wait()
            os.kill(os.getpid(), signal.SIGKILL)

        if fault in {Fault.KILL, Fault.HANG} and step is not Step.CALL:
            strike(worker, step, fault, on_kill=end)
        await worker.run(asyncio.Event(), until_drained=True)
