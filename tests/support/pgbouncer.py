"""pgbouncer in transaction mode, in front of a PostgreSQL server of a test run."""

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from worker.embedded.keeper import Command, Keeper
from worker.embedded.loopback import HOST, free_port
from worker.embedded.postgres_binaries import server_account
from worker.embedded.server import await_serving

START_TIMEOUT_S = 30.0
SERVER_CONNECTIONS = 3
"""Fewer than a worker's clients: its transactions meet on server connections that others used before."""


def pgbouncer() -> Path | None:
    found = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    return None if found is None else Path(found)


@contextmanager
def pooled(program: Path, dsn: str) -> Iterator[str]:
    """The same database behind a pooler; its DSN."""
    address, port, account = urlsplit(dsn), free_port(), server_account()
    with Keeper(account=account) as keeper:
        users = keeper.directory / "users.txt"
        users.write_text(f'"{address.username}" "{unquote(address.password or "")}"\n')
        configuration = keeper.directory / "pgbouncer.ini"
        configuration.write_text(
            "[databases]\n"
            f"* = host={address.hostname} port={address.port}\n"
            "[pgbouncer]\n"
            f"listen_addr = {HOST}\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = scram-sha-256\nauth_file = {users}\n"
            f"pool_mode = transaction\ndefault_pool_size = {SERVER_CONNECTIONS}\nmax_client_conn = 200\n"
        )
        keeper.spawn(Command((str(program), str(configuration)), env={"LC_ALL": "C"}, account=account))
        await_serving("pgbouncer", keeper, lambda: _accepts(port), timeout_s=START_TIMEOUT_S)
        user = address.netloc.rpartition("@")[0]
        yield urlunsplit(address._replace(netloc=f"{user}@{HOST}:{port}"))


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 0.5).close()
    except OSError:
        return False
    return True
