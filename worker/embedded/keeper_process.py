"""A script that keeps one temporary directory and one process for its owner, and outlives it to end both.

Started by `worker.embedded.keeper` in a session of its own, so that a terminal's Ctrl-C reaches the owner alone. It
reads one JSON command a line and writes one JSON event a line; the end of its input means that the owner is gone,
whichever way it went (exit, exception, SIGTERM, SIGKILL), and that is when it cleans up.

    <- {"directory": path}                       once, at start
    -> {"spawn": {argv, env, output, input, uid, gid, farewell}}
    <- {"pid": number}
    -> {"signal": number}                        to the process
    <- {"exited": status}                        negative: by that signal; nothing it forked is left

It stays a process of one thread, as Linux binds a child's parent-death signal to the thread that forked it.
"""

import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

FAREWELL_TIMEOUT_S = 10.0
"""How long a process may take over its farewell signal before SIGKILL."""

POLL_INTERVAL_S = 0.005
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CANNOT_EXECUTE = 127


class Kept:
    """The process being kept, if any."""

    def __init__(self) -> None:
        self.pid = 0
        self.farewell = int(signal.SIGKILL)

    def spawn(self, order: dict[str, Any]) -> None:
        keeper_pid = os.getpid()
        self.farewell = order["farewell"]
        self.pid = os.fork()
        if self.pid == 0:
            become(order, keeper_pid)
        emit({"pid": self.pid})

    def signal(self, number: int) -> None:
        if self.pid:
            os.kill(self.pid, number)

    def reap(self) -> None:
        """Tell the owner of an exit, once everything that the process left behind has been ended too."""
        if not self.pid:
            return
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.pid = 0
            end_orphans(pid)
            emit({"exited": os.waitstatus_to_exitcode(status)})

    def end(self) -> None:
        """The farewell signal, then SIGKILL for it and all it left behind."""
        if not self.pid:
            return
        os.kill(self.pid, self.farewell)
        deadline = time.monotonic() + FAREWELL_TIMEOUT_S
        while not os.waitpid(self.pid, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(POLL_INTERVAL_S)
        end_orphans(self.pid)
        self.pid = 0


def end_orphans(group: int) -> None:
    """SIGKILL for the group of an ended process, and on Linux for all that it forked, whatever their group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    deadline = time.monotonic() + FAREWELL_TIMEOUT_S
    with suppress(ChildProcessError, FileNotFoundError):
        while time.monotonic() < deadline:
            for pid in map(int, children.read_text().split()):
                os.kill(pid, signal.SIGKILL)
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(POLL_INTERVAL_S)


def become(order: dict[str, Any], keeper_pid: int) -> None:
    """Turn this fresh fork into the ordered process; never returns."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        redirect(order["input"], order["output"])
        if order["uid"] is not None:
            os.setgroups([order["gid"]])
            os.setgid(order["gid"])
            os.setuid(order["uid"])
        die_with_parent(order["farewell"], keeper_pid)
        if order["env"] is None:
            os.execv(order["argv"][0], order["argv"])  # noqa: S606  # no shell wanted
        os.execve(order["argv"][0], order["argv"], order["env"])  # noqa: S606  # no shell wanted
    except BaseException as error:  # noqa: BLE001  # the fork must never run on as a second keeper
        os.write(2, f"{order['argv'][0]}: {error}\n".encode())
    os._exit(CANNOT_EXECUTE)


def redirect(source: str | None, output: str) -> None:
    os.dup2(os.open(source or os.devnull, os.O_RDONLY), 0)
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)


def die_with_parent(number: int, keeper_pid: int) -> None:
    """A second line for when the keeper itself is killed. Asked after setuid, which would undo it."""
    prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != keeper_pid:
        os._exit(CANNOT_EXECUTE)


def prctl(option: int, value: int) -> None:
    """What Linux alone can promise: elsewhere, and under a Python without ctypes, nothing happens."""
    if sys.platform != "linux":
        return
    with suppress(ImportError, OSError, AttributeError):
        import ctypes  # noqa: PLC0415  # slow, and not in every Python

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def emit(event: dict[str, Any]) -> None:
    # Nobody reads any more when the owner is gone: its end of input follows.
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(event).encode() + b"\n")


class Inbox:
    """Commands in order, until the owner is gone or SIGTERM came."""

    def __init__(self) -> None:
        self.wakeup, poke = os.pipe()
        os.set_blocking(poke, False)
        signal.set_wakeup_fd(poke)
        self.terminated = False
        signal.signal(signal.SIGTERM, self.terminate)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def terminate(self, *_: object) -> None:
        self.terminated = True

    def commands(self, kept: Kept) -> Iterator[dict[str, Any]]:
        """Between two commands, the owner is told of the process's exit."""
        pending = b""
        while not self.terminated:
            readable, _, _ = select.select([0, self.wakeup], [], [])
            if self.wakeup in readable:
                os.read(self.wakeup, 4096)
                kept.reap()
            if 0 in readable:
                chunk = os.read(0, 65_536)
                if not chunk:
                    return
                *lines, pending = (pending + chunk).split(b"\n")
                yield from map(json.loads, lines)


def make_directory(parent: str, uid: int | None, gid: int | None) -> str:
    directory = tempfile.mkdtemp(prefix="attribution-worker-", dir=parent)
    if uid is not None and gid is not None:
        os.chown(directory, uid, gid)
    return directory


def main() -> None:
    settings = json.loads(sys.argv[1])
    kept, inbox = Kept(), Inbox()
    # Whatever the process leaves behind becomes our child, and can be found.
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    directory = make_directory(settings["parent"], settings["uid"], settings["gid"])
    try:
        # Nobody's mount is held, and whose a process is can be told by where it works.
        os.chdir(directory)
        emit({"directory": directory})
        for command in inbox.commands(kept):
            match command:
                case {"spawn": spawn}:
                    kept.spawn(spawn)
                case {"signal": number}:
                    kept.signal(number)
    finally:
        kept.end()
        remove(Path(directory))


def remove(directory: Path) -> None:
    """Once more while stragglers of the process still write into it."""
    deadline = time.monotonic() + FAREWELL_TIMEOUT_S
    while directory.exists() and time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(POLL_INTERVAL_S if directory.exists() else 0)


if __name__ == "__main__":
    main()
