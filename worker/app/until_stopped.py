"""A worker as the one thing its process does: its event loop, its signals, its garbage."""

import asyncio
import gc
import signal

import uvloop

from worker.app.running import RunSummary, open_worker
from worker.settings import Settings

COLLECTION_INTERVAL_OBJECTS = 10_000
"""Container objects made between two garbage collections: those of a few dozen records."""


def run_until_stopped(settings: Settings, *, until_drained: bool) -> RunSummary:
    """Run a worker in this process until SIGTERM or SIGINT; a second one does not wait for the drain."""
    return uvloop.run(_run_until_signalled(settings, until_drained=until_drained))


async def _run_until_signalled(settings: Settings, *, until_drained: bool) -> RunSummary:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    running = asyncio.current_task()

    def on_signal() -> None:
        if stop.is_set() and running is not None:
            running.cancel("a second signal")
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    async with open_worker(settings) as worker:
        ease_garbage_collection()
        return await worker.run(stop, until_drained=until_drained)


def ease_garbage_collection() -> None:
    """Look for garbage less often, and not among what lives as long as the process.

    Records are freed without it, by their reference counts. As Python comes, an event's thousand objects make it go
    through every loaded module time and again, for a tenth of the worker's processor time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTION_INTERVAL_OBJECTS)
