"""The keeper: one process at a time, all it forked ended with it, its words in the error."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.processes import await_that
from worker.embedded.failure import LaunchError
from worker.embedded.keeper import Command, Keeper

TIMEOUT_S = 20.0


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    with Keeper() as kept:
        yield kept


def shell(script: str) -> Command:
    path = shutil.which("sh")
    assert path is not None
    return Command((path, "-c", script), env={"PATH": os.defpath})


def test_a_process_that_fails_is_told_with_its_last_words(keeper: Keeper) -> None:
    with pytest.raises(LaunchError, match=r"failed with status 3\n  \| no room"):
        keeper.run(shell("echo no room >&2; exit 3"), TIMEOUT_S)


def test_a_process_that_takes_too_long_is_killed(keeper: Keeper) -> None:
    with pytest.raises(LaunchError, match=r"more than 0\.1 s"):
        keeper.run(shell("sleep 300"), timeout_s=0.1)
    assert keeper.pid is None


def test_a_program_that_is_not_there_is_told(keeper: Keeper) -> None:
    with pytest.raises(LaunchError, match=r"status 127\n  \| /no/such/program: .*No such file"):
        keeper.run(Command(("/no/such/program",), env={}), TIMEOUT_S)


def test_a_second_process_is_refused_while_the_first_runs(keeper: Keeper) -> None:
    first = keeper.spawn(shell("sleep 300"))
    with pytest.raises(LaunchError, match=f"pid {first}"):
        keeper.spawn(shell("true"))
    assert keeper.pid == first


def test_an_exit_is_told_with_its_status(keeper: Keeper) -> None:
    keeper.spawn(shell("kill -TERM $$; sleep 300"))
    assert keeper.wait(TIMEOUT_S) == -signal.SIGTERM
    keeper.spawn(shell("exit 5"))
    assert keeper.wait(TIMEOUT_S) == 5


def test_what_a_process_left_in_a_session_of_its_own_is_ended_before_its_exit_is_told(keeper: Keeper) -> None:
    pid_file = keeper.directory / "pid"
    keeper.run(
        shell(f"setsid sh -c 'echo $$ > {pid_file}; exec sleep 300' & until [ -s {pid_file} ]; do :; done"), TIMEOUT_S
    )
    assert not psutil.pid_exists(int(pid_file.read_text()))


def test_environment_is_what_the_command_says_and_nothing_else(keeper: Keeper) -> None:
    env = shutil.which("env")
    assert env is not None
    keeper.run(Command((env,), env={"ONLY": "this"}), TIMEOUT_S)
    assert keeper.output.read_text() == "ONLY=this\n"


def test_input_comes_from_the_named_file(keeper: Keeper, tmp_path: Path) -> None:
    (tmp_path / "input").write_text("spoken")
    keeper.run(Command((str(shutil.which("cat")),), env={}, stdin=tmp_path / "input"), TIMEOUT_S)
    assert keeper.output.read_text() == "spoken"


def test_a_closed_keeper_starts_nothing() -> None:
    keeper = Keeper()
    keeper.close()
    with pytest.raises(LaunchError, match="closed already"):
        keeper.spawn(shell("true"))


def test_a_keeper_that_was_killed_is_noticed(keeper: Keeper) -> None:
    served = psutil.Process(keeper.spawn(shell("sleep 300")))
    keeper._process.kill()
    with pytest.raises(LaunchError, match="gone"):
        keeper.wait(TIMEOUT_S)
    assert await_that(lambda: not served.is_running(), timeout_s=TIMEOUT_S)
    shutil.rmtree(keeper.directory)


def test_sigterm_to_the_keeper_ends_everything(keeper: Keeper) -> None:
    # As a container's runtime or a service manager ends every process there is.
    served = psutil.Process(keeper.spawn(shell("sleep 300")))
    keeper._process.terminate()
    assert await_that(lambda: not served.is_running() and not keeper.directory.exists(), timeout_s=TIMEOUT_S)
