"""Worker processes, each in a place of its own, started again whenever one ends; to be killed, frozen and woken."""

import asyncio
import json
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.command_line import environment, environment_of, program
from worker.settings import Settings

RESTART_PAUSE_S = 0.3
LEAVE_S_MAX = 40.0
"""A worker that was told to stop, or that has been fenced, is gone by then."""

REASON_CHARACTERS = 70
UNEXPLAINED = "without a word"

OURS = ("in order", signal.SIGKILL.name, signal.SIGTERM.name)
"""How a worker ends that was told to, or killed, or told before it listens."""

REASONS = ("stopped:", "unavailable:", "Left at once")
"""How a worker's last word begins."""


@dataclass(frozen=True)
class Exit:
    place: int
    pid: int
    code: int
    last_lines: Sequence[str]

    @property
    def reason(self) -> str:
        """In its own words, where it had any."""
        if self.code <= 0:
            return OURS[0] if self.code == 0 else signal.Signals(-self.code).name
        told = [line for line in self.last_lines if line.startswith(REASONS)]
        return told[0][:REASON_CHARACTERS] if told else UNEXPLAINED


@dataclass
class Place:
    """Where one worker runs, under one group instance id. Whoever ended is replaced."""

    number: int
    process: Process | None = None
    log: Path | None = None
    replaced: asyncio.Event = field(default_factory=asyncio.Event)


class Fleet:
    """`size` workers of one group; static members, as a StatefulSet's are."""

    def __init__(self, settings: Settings, directory: Path, size: int) -> None:
        self._settings = settings
        self._directory = directory
        self._places = [Place(number) for number in range(size)]
        self._zombies: list[Process] = []
        self._ending = False
        self._starts = 0
        self.exits: list[Exit] = []
        self.bugs: list[str] = []
        self.cut_offs = 0
        """Workers killed or frozen in mid-work."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            for place in self._places:
                tasks.create_task(self._keep(place))
            try:
                yield
            finally:
                await self._end()

    @property
    def places(self) -> list[int]:
        return [place.number for place in self._places]

    def kill(self, number: int) -> None:
        self._signal(number, signal.SIGKILL)
        self.cut_offs += 1

    async def restart(self, number: int) -> None:
        """In order: told to stop, gone, and another is there."""
        process = self._places[number].process
        if process is not None and process.returncode is None:
            process.terminate()
            await process.wait()

    def freeze(self, number: int) -> None:
        self._signal(number, signal.SIGSTOP)
        self.cut_offs += 1

    def wake(self, number: int) -> None:
        self._signal(number, signal.SIGCONT)

    def wake_process(self, process: Process) -> None:
        """One whose place has been taken."""
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)

    def replace(self, number: int) -> Process | None:
        """Another worker takes the place, under the same instance id, while this one (frozen, say) is still there."""
        place = self._places[number]
        process = place.process
        if process is None or process.returncode is not None:
            return None
        self._zombies.append(process)
        place.replaced.set()
        return process

    def _signal(self, number: int, which: signal.Signals) -> None:
        process = self._places[number].process
        if process is not None and process.returncode is None:
            process.send_signal(which)

    async def _keep(self, place: Place) -> None:
        while not self._ending:
            place.replaced.clear()
            place.process = process = await self._start(place)
            async with asyncio.TaskGroup() as tasks:
                ended = tasks.create_task(process.wait())
                replaced = tasks.create_task(place.replaced.wait())
                await asyncio.wait({ended, replaced}, return_when=asyncio.FIRST_COMPLETED)
                ended.cancel()
                replaced.cancel()
            if process.returncode is not None:
                self._ended(place, process)
            if not self._ending:
                await asyncio.sleep(RESTART_PAUSE_S)

    async def _start(self, place: Place) -> Process:
        self._starts += 1
        settings = self._settings.overridden({"kafka": {"group_instance_id": f"worker-{place.number}"}})
        place.log = self._directory / f"worker-{place.number}.{self._starts:03}.log"
        with place.log.open("wb") as log:
            return await asyncio.create_subprocess_exec(
                *program("run"), env=environment(**environment_of(settings)), stdout=log, stderr=log
            )

    def _ended(self, place: Place, process: Process) -> None:
        assert process.returncode is not None
        assert place.log is not None
        lines = place.log.read_text(errors="replace").splitlines()
        self.exits.append(Exit(place.number, process.pid, process.returncode, lines[-3:]))

    async def _end(self) -> None:
        """Everybody leaves in order; whoever does not is a finding."""
        self._ending = True
        processes = [place.process for place in self._places if place.process is not None]
        for process in (*processes, *self._zombies):
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in (*processes, *self._zombies):
            try:
                async with asyncio.timeout(LEAVE_S_MAX):
                    await process.wait()
            except TimeoutError:
                self.bugs.append(f"worker {process.pid} did not leave within {LEAVE_S_MAX:g} s")
                process.kill()
                await process.wait()
        unexplained = [one for one in self.exits if one.reason not in OURS and not one.reason.startswith(REASONS)]
        self.bugs += [f"{one.pid} ended with {one.code}, {one.reason}: {one.last_lines}" for one in unexplained]
        self.bugs += bugs_in(self._directory)


def bugs_in(directory: Path) -> list[str]:
    """What no worker's log should ever hold."""
    return [
        f"{path.name}: {problem}"
        for path in sorted(directory.glob("*.log"))
        for text in path.read_text(errors="replace").splitlines()
        if (problem := _bug_in(text))
    ]


def _bug_in(text: str) -> str | None:
    try:
        line = json.loads(text)
    except ValueError:
        # Anything that is not a line of the log, and yet tells of an error.
        return text if "Traceback" in text or "never retrieved" in text or "was destroyed" in text else None
    if line.get("event") == "worker.crashed" or line.get("level") == "critical":
        return json.dumps(line)[-600:]
    return None
