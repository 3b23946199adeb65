"""A worker in a process of its own that looks at itself: a sample a line on stdout, until it is told to stop."""

import asyncio
import json
import signal
import sys
import time
from dataclasses import asdict

import psutil
import uvloop

from tests.guarantees.soak.growth import Sample
from worker.app import Worker, ease_garbage_collection, open_worker
from worker.settings import load_settings
from worker.telemetry import configure_logging

SAMPLE_INTERVAL_S = 2.0


async def sample_regularly(worker: Worker) -> None:
    process, started_s = psutil.Process(), time.monotonic()
    while True:
        sample = Sample(
            at_s=time.monotonic() - started_s,
            rss_bytes=process.memory_info().rss,
            open_files=process.num_fds(),
            tasks=len(asyncio.all_tasks()),
            connections_in_use=worker.store.database.engine.sync_engine.pool.checkedout(),  # type: ignore[attr-defined]  # a QueuePool
            records_settled=worker.telemetry.outcomes.total(),
        )
        sys.stdout.write(json.dumps(asdict(sample)) + "\n")
        sys.stdout.flush()
        await asyncio.sleep(SAMPLE_INTERVAL_S)


async def main() -> None:
    settings = load_settings()
    configure_logging(settings.log)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with open_worker(settings) as worker, asyncio.TaskGroup() as tasks:
        ease_garbage_collection()
        sampling = tasks.create_task(sample_regularly(worker))
        await worker.run(stop)
        sampling.cancel()


if __name__ == "__main__":
    uvloop.run(main())
