"""The command line as a person or a script meets it: what it prints, where, and how it ends."""

import io
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

import worker.cli

KEPT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of the program."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def message(self) -> str:
        """What stderr says, without the frames, line breaks and colours that a width of terminal puts in."""
        return " ".join(self.stderr.replace("│", " ").split())


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "worker", *arguments]


def environment(**variables: str) -> dict[str, str]:
    """Nothing of the caller's settings, and output of a known width."""
    own = {name: os.environ[name] for name in KEPT if name in os.environ}  # noqa: TID251  # handed on, not read
    return {**own, "COLUMNS": "100", "PYTHONUTF8": "1", **variables}


class RunHere:
    """Runs the program in this process: `run("attribute", "-", stdin=b"...", env={"ATTRIBUTION_…": "…"})`."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(
        self, *arguments: str, stdin: bytes = b"", columns: int = 100, env: Mapping[str, str] | None = None
    ) -> Ran:
        with self._monkeypatch.context() as patch, logging_left_alone(patch):
            patch.setattr(sys, "argv", ["attribution-worker", *arguments])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            for name, value in {"COLUMNS": str(columns), **(env or {})}.items():
                patch.setenv(name, value)
            self._capsys.readouterr()
            exit_code = 0
            try:
                worker.cli.main()
            except SystemExit as end:
                exit_code = end.code if isinstance(end.code, int) else int(bool(end.code))
        printed = self._capsys.readouterr()
        return Ran(exit_code, printed.out, printed.err)


@contextmanager
def logging_left_alone(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a command does to the logging of its process is not done to that of the test run."""
    root = logging.getLogger()
    kept, level = list(root.handlers), root.level
    for module in ("worker.cli", "worker.cli.run", "worker.cli.demo"):
        # By the table of modules: in the package, the command has taken its module's name.
        patch.setattr(sys.modules[module], "configure_logging", lambda _settings: None)
    try:
        yield
    finally:
        root.handlers[:] = kept
        root.setLevel(level)
