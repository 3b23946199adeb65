"""TLS as the DSN asks for it, against a server with a certificate of a test's authority."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres.database import open_database
from worker.adapters.postgres.migrate import migrate_database
from worker.embedded.authority import Authority
from worker.embedded.postgres import PostgresServer
from worker.embedded.postgres_binaries import embedded_binaries, system_binaries
from worker.errors import FatalError, UnavailableError
from worker.settings import ConfigurationError, PostgresSettings

pytestmark = pytest.mark.postgres

SPEAKS_TLS = text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
FAST = {"fsync": "off"}


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[PostgresServer]:
    binaries = system_binaries() or embedded_binaries()
    with PostgresServer(binaries, parameters=FAST, certificate=authority.issue("postgres")) as started:
        yield started


async def speaks_tls(dsn: str) -> bool:
    async with (
        open_database(PostgresSettings(dsn=SecretStr(dsn))) as database,
        database.engine.connect() as connection,
    ):
        return bool((await connection.execute(SPEAKS_TLS)).scalar_one())


async def test_the_whole_certificate_is_verified_where_the_dsn_says_so(
    server: PostgresServer, authority: Authority
) -> None:
    dsn = f"{server.dsn}?sslmode=verify-full&sslrootcert={authority.ca_file}"
    assert await speaks_tls(dsn)
    await migrate_database(PostgresSettings(dsn=SecretStr(dsn)))


async def test_a_dsn_may_ask_for_no_tls(server: PostgresServer) -> None:
    assert not await speaks_tls(f"{server.dsn}?sslmode=disable")


async def test_a_server_of_another_authority_stops_us_instead_of_being_waited_for(
    server: PostgresServer, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path)
    dsn = f"{server.dsn}?sslmode=verify-full&sslrootcert={stranger.ca_file}"
    with pytest.raises(FatalError, match=r"certificate verify failed.*postgres\.dsn"):
        await migrate_database(PostgresSettings(dsn=SecretStr(dsn)))


async def test_a_certificate_of_another_host_stops_us(authority: Authority) -> None:
    elsewhere = authority.issue("elsewhere", "DNS:db.example")
    binaries = system_binaries() or embedded_binaries()
    with PostgresServer(binaries, parameters=FAST, certificate=elsewhere) as server:
        dsn = f"{server.dsn}?sslmode=verify-full&sslrootcert={authority.ca_file}"
        with pytest.raises(FatalError, match="certificate verify failed"):
            await migrate_database(PostgresSettings(dsn=SecretStr(dsn)))
        assert await speaks_tls(f"{server.dsn}?sslmode=verify-ca&sslrootcert={authority.ca_file}")


async def test_a_missing_authority_file_stops_us(server: PostgresServer) -> None:
    dsn = f"{server.dsn}?sslmode=verify-full&sslrootcert=/no/such/file"
    with pytest.raises(ConfigurationError, match=r"postgres\.dsn: sslrootcert cannot be read"):
        await migrate_database(PostgresSettings(dsn=SecretStr(dsn)))


async def test_a_server_without_tls_stops_us_where_tls_is_asked_for() -> None:
    with PostgresServer(system_binaries() or embedded_binaries(), parameters=FAST) as server:
        settings = PostgresSettings(dsn=SecretStr(f"{server.dsn}?sslmode=require"))
        with pytest.raises(FatalError, match="rejected SSL upgrade"):
            await migrate_database(settings)


@asynccontextmanager
async def going_down() -> AsyncIterator[str]:
    """A server that is told to stop while it says that it speaks no TLS: both arrive at once."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"N" + b"E\x00\x00\x00\x0fSFATAL\x00C57P01\x00\x00")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"postgresql://somebody:secret@127.0.0.1:{server.sockets[0].getsockname()[1]}/attribution"


async def test_a_server_that_goes_down_while_it_refuses_tls_is_an_outage() -> None:
    """A campaign with a restarted database found it: such a worker stopped, as if its settings were wrong."""
    async with going_down() as dsn:
        async with open_database(PostgresSettings(dsn=SecretStr(dsn))) as database:
            with pytest.raises(UnavailableError, match="rejected SSL upgrade"):
                await database.run(_nothing)
        async with open_database(PostgresSettings(dsn=SecretStr(f"{dsn}?sslmode=require"))) as database:
            with pytest.raises(FatalError, match="rejected SSL upgrade"):
                await database.run(_nothing)


async def _nothing(connection: AsyncConnection) -> None:
    await connection.execute(text("SELECT 1"))
