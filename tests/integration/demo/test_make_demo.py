"""`make demo` that was interrupted goes on where it has to, and a finished install is not repeated."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command_line import environment
from tests.support.processes import await_that

REPOSITORY = Path(__file__).parents[3]
PYTHON = """#!/bin/sh
# A Python that installs nothing: what it is asked goes to a log, and it takes as long as the file `slow` is there.
cd {directory}
echo "$*" >> asked
case "$*" in
"-m venv "*) mkdir -p .venv/bin && cp python .venv/bin/python && cp worker .venv/bin/attribution-worker ;;
esac
case "$*" in *"$(cat slow 2>/dev/null || echo never)"*) echo waiting >> waits; exec sleep 60 ;; esac
"""
WORKER = """#!/bin/sh
echo "worker $*"
"""


class Checkout:
    """A fresh one, with a Python that only notes what it is asked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "deploy").mkdir()
        for name in ("Makefile", "pyproject.toml", "requirements-demo.lock", "deploy/prerequisites.sh"):
            shutil.copy(REPOSITORY / name, directory / name)
        self._script("python", PYTHON.format(directory=directory))
        self._script("worker", WORKER)

    def _script(self, name: str, text: str) -> None:
        path = self.directory / name
        path.write_text(text)
        path.chmod(0o755)

    @contextmanager
    def make_demo(self) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(  # noqa: S603  # make and a path of our own
            ["make", "demo", f"PYTHON={self.directory / 'python'}"],  # noqa: S607  # the one of the path
            cwd=self.directory,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def demo(self) -> tuple[int, str]:
        with self.make_demo() as process:
            printed, _ = process.communicate(timeout=30)
        return process.returncode, printed

    def demo_interrupted_at(self, step: str, number: signal.Signals) -> None:
        (self.directory / "slow").write_text(step)
        with self.make_demo() as process:
            assert await_that((self.directory / "waits").exists, timeout_s=30)
            os.killpg(process.pid, number)
            process.communicate(timeout=30)
        assert process.returncode != 0
        (self.directory / "slow").unlink()

    def asked(self) -> list[str]:
        """What Python was asked since the last look."""
        log = self.directory / "asked"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line for line in lines if line.startswith("-m")]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_first_run_installs_and_the_second_does_not(checkout: Checkout) -> None:
    exit_code, printed = checkout.demo()
    assert exit_code == 0, printed
    assert "Installing the worker and the embedded services (once)" in printed
    assert printed.splitlines()[-1] == "worker demo --broker embedded"
    venv, dependencies, itself = checkout.asked()
    assert venv.startswith("-m venv ")
    assert "--require-hashes -r requirements-demo.lock" in dependencies
    assert itself.endswith("-e .")

    assert checkout.demo() == (0, "worker demo --broker embedded\n")
    assert checkout.asked() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("step", ["-m venv", "requirements-demo.lock", "-e ."])
def test_an_interrupted_install_is_done_again_from_the_step_that_was_not_finished(
    checkout: Checkout, step: str, number: signal.Signals
) -> None:
    checkout.demo_interrupted_at(step, number)
    asked = checkout.asked()
    assert step in asked[-1]

    exit_code, printed = checkout.demo()
    assert exit_code == 0, printed
    assert printed.splitlines()[-1] == "worker demo --broker embedded"
    again = checkout.asked()
    assert any(step in line for line in again)
    assert sum("requirements-demo.lock" in line for line in again) == 1


def test_a_new_lock_is_installed(checkout: Checkout) -> None:
    checkout.demo()
    checkout.asked()
    lock = checkout.directory / "requirements-demo.lock"
    later = (checkout.directory / ".venv" / "demo.stamp").stat().st_mtime + 1
    os.utime(lock, (later, later))
    assert checkout.demo()[0] == 0
    assert len(checkout.asked()) == 2
