"""Looking at processes from outside: whose they are, and whether they are gone."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

POLL_INTERVAL_S = 0.02


@contextmanager
def open_directory() -> Iterator[Path]:
    """A temporary directory that other accounts can pass through, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="attribution-test-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        yield directory


def processes_at(directory: Path) -> list[str]:
    """Command lines of the processes that work below this directory, or name it."""
    return [line for process in psutil.process_iter() if str(directory) in (line := _description(process))]


def _description(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {process.cwd()} {' '.join(process.cmdline())}"
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


def await_that(condition: Callable[[], bool], *, timeout_s: float) -> bool:
    """Whether it became true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True
