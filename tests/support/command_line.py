"""The command line as a person or a script meets it: what it prints, where, and how it ends."""

import gc
import io
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python

import worker.cli
from worker.settings import Settings, variable_name

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
        with self._monkeypatch.context() as patch, process_left_alone(patch):
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
def process_left_alone(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a command does to its process (logging, garbage collection) is not done to that of the test run."""
    thresholds = gc.get_threshold()
    root = logging.getLogger()
    kept, level = list(root.handlers), root.level
    for module in ("worker.cli", "worker.cli.run"):
        # By the table of modules: in the package, the command has taken its module's name.
        patch.setattr(sys.modules[module], "configure_logging", lambda _settings: None)
    try:
        yield
    finally:
        root.handlers[:] = kept
        root.setLevel(level)
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def environment_of(settings: Settings) -> dict[str, str]:
    """The variables that give a worker these settings."""
    sections = [(name, value) for name, value in settings if isinstance(value, BaseModel)]
    return {
        variable_name([section, name]): _written(getattr(value, name))
        for section, value in sections
        for name in value.model_fields_set
    }


def _written(value: object) -> str:
    plain = value.get_secret_value() if isinstance(value, SecretStr) else to_jsonable_python(value)
    return plain if isinstance(plain, str) else json.dumps(plain)
