"""The program, run in this process."""

import pytest

from tests.support.command_line import RunHere


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> RunHere:
    return RunHere(capsys, monkeypatch)
