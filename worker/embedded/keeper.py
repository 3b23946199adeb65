"""A temporary directory and one process at a time that end with us, however we end."""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from worker.embedded import keeper_process
from worker.embedded.failure import LaunchError

REPLY_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = keeper_process.FAREWELL_TIMEOUT_S * 2 + 5
OUTPUT_TAIL_LINES = 15


@dataclass(frozen=True)
class Account:
    """Whom a process runs as, where that is not ourselves."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Command:
    """A process to be. `env` None is our own environment; `farewell` is the signal it gets when its owner is gone."""

    argv: Sequence[str]
    env: Mapping[str, str] | None
    account: Account | None = None
    stdin: Path | None = None
    farewell: signal.Signals = signal.SIGKILL


class Keeper:
    """Owns a temporary directory and at most one process at a time, through a small process that outlives us.

    Whatever ends the owner, SIGKILL included, ends the process and removes the directory: the small process sees its
    input end. That one killed too, Linux still ends the process, and the directory stays; elsewhere both stay. A fork
    of the owner that never execs holds them alive as long as it lives.
    """

    def __init__(self, parent: Path | None = None, account: Account | None = None) -> None:
        where = {
            "parent": str(parent or _temporary_root(account)),
            "uid": account and account.uid,
            "gid": account and account.gid,
        }
        self._process = subprocess.Popen(  # noqa: S603  # our own interpreter and script
            [sys.executable, "-I", "-S", keeper_process.__file__, json.dumps(where)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        self._pending = b""
        self._running_pid: int | None = None
        self._exit_status: int | None = None
        try:
            self.directory = Path(self._expect("directory", REPLY_TIMEOUT_S))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def output(self) -> Path:
        """Where the processes' stdout and stderr go, one after the other."""
        return self.directory / "output.log"

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        self._drain(0)
        return self._running_pid

    def spawn(self, command: Command) -> int:
        """Start the process; the pid.

        Raises:
            LaunchError: one is running already, or the keeper is gone.
        """
        if self.pid is not None:
            raise LaunchError(f"{command.argv[0]}: the one before still runs, pid {self._running_pid}")
        account = command.account
        self._send(
            {
                "spawn": {
                    "argv": [str(argument) for argument in command.argv],
                    "env": command.env if command.env is None else dict(command.env),
                    "output": str(self.output),
                    "input": command.stdin and str(command.stdin),
                    "uid": account and account.uid,
                    "gid": account and account.gid,
                    "farewell": int(command.farewell),
                }
            }
        )
        return int(self._expect("pid", REPLY_TIMEOUT_S))

    def run(self, command: Command, timeout_s: float) -> None:
        """Run a process to its end.

        Raises:
            LaunchError: it failed, or took longer than `timeout_s` (it is then killed).
        """
        self.spawn(command)
        status = self.wait(timeout_s)
        if status is None:
            self.signal(signal.SIGKILL)
            self.wait(REPLY_TIMEOUT_S)
            raise LaunchError(f"{command.argv[0]} took more than {timeout_s:g} s{self.output_tail()}")
        if status != 0:
            raise LaunchError(f"{command.argv[0]} failed with status {status}{self.output_tail()}")

    def signal(self, number: signal.Signals) -> None:
        """Signal the process; nothing when it is gone already."""
        self._send({"signal": int(number)})

    def wait(self, timeout_s: float) -> int | None:
        """The process's exit status (negative: by that signal), or None if it still runs after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self._running_pid is not None:
            remaining_s = deadline - time.monotonic()
            if not self._drain(max(0.0, remaining_s)) and remaining_s <= 0:
                return None
        return self._exit_status

    def output_tail(self) -> str:
        """The last lines of the output, ready to end an error message with."""
        with suppress(OSError):
            lines = self.output.read_text(errors="replace").splitlines()[-OUTPUT_TAIL_LINES:]
            return "".join(f"\n  | {line}" for line in lines)
        return ""

    def close(self) -> None:
        """End the process, remove the directory; returns when both are done. Again is nothing."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is not None:
            stdin.close()
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if stdout is not None:
            stdout.close()
        self._running_pid = None

    def _send(self, command: Mapping[str, Any]) -> None:
        stdin = self._process.stdin
        if stdin is None or stdin.closed:
            raise LaunchError("closed already")
        try:
            stdin.write(json.dumps(command).encode() + b"\n")
        except BrokenPipeError:
            raise LaunchError(f"the keeper of {self.directory} is gone") from None

    def _expect(self, name: str, timeout_s: float) -> Any:
        deadline = time.monotonic() + timeout_s
        while (remaining_s := deadline - time.monotonic()) > 0:
            for event in self._drain(remaining_s):
                if name in event:
                    return event[name]
        raise LaunchError(f"the keeper did not answer within {timeout_s:g} s")

    def _drain(self, timeout_s: float) -> list[dict[str, Any]]:
        """Take in the events that are there, waiting up to `timeout_s` for the first; an exit is noted."""
        stdout = self._process.stdout
        if stdout is None or stdout.closed:
            return []
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                return []
        chunk = os.read(stdout.fileno(), 65_536)
        if not chunk:
            self._running_pid = None
            raise LaunchError("the keeper is gone, and what it kept with it")
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        events: list[dict[str, Any]] = [json.loads(line) for line in lines]
        for event in events:
            if "pid" in event:
                self._running_pid, self._exit_status = event["pid"], None
            if "exited" in event:
                self._running_pid, self._exit_status = None, event["exited"]
        return events


def _temporary_root(account: Account | None) -> Path:
    """The usual temporary directory, unless another account has to get through to it and cannot."""
    usual = Path(tempfile.gettempdir())
    if account is None:
        return usual
    shared = [Path(root) for root in ("/tmp", "/var/tmp")]  # noqa: S108  # where every account may go; mkdtemp follows
    return next((root for root in (usual, *shared) if open_to_all(root)), usual)


def open_to_all(path: Path) -> bool:
    """Whether every account may read this file, or enter this directory, and all directories above it."""
    try:
        resolved = path.resolve(strict=True)
        reachable = all(parent.stat().st_mode & 0o001 for parent in resolved.parents)
        needed = 0o001 if resolved.is_dir() else 0o004
        return reachable and bool(resolved.stat().st_mode & needed)
    except OSError:
        return False
