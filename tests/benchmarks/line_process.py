"""One run in a process of its own: `python -m tests.benchmarks.line_process`, task on stdin, result on stdout."""

import sys
from collections.abc import Awaitable, Callable, Mapping

import uvloop

from tests.benchmarks.bare_loop import run_bare_loop, time_single_commits
from tests.benchmarks.line_runs import run_line
from tests.benchmarks.line_task import Result, Task, What
from worker.app import ease_garbage_collection
from worker.telemetry import configure_logging

RUNS: Mapping[What, Callable[[Task], Awaitable[Result]]] = {
    "line": run_line,
    "bare": run_bare_loop,
    "commits": time_single_commits,
}


async def _run(task: Task) -> Result:
    ease_garbage_collection()
    return await RUNS[task.what](task)


def main() -> None:
    """As `attribution-worker run` does it: the same event loop, log and garbage collection, for the baselines too."""
    task = Task.decode(sys.stdin.read())
    configure_logging(task.settings().log)
    sys.stdout.write(uvloop.run(_run(task)).encode())


if __name__ == "__main__":
    main()
