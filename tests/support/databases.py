"""Databases for tests: one is migrated once a run, and every test gets a fresh copy of it."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg


class Databases:
    """Makes and drops databases on one server."""

    def __init__(self, server_dsn: str) -> None:
        self._server_dsn = server_dsn
        self._run = f"test_{uuid.uuid4().hex[:8]}"
        self._made = 0
        self._template: str | None = None

    @contextmanager
    def empty(self) -> Iterator[str]:
        with self._copy_of("template0") as dsn:
            yield dsn

    @contextmanager
    def migrated(self) -> Iterator[str]:
        with self._copy_of(self._migrated_template()) as dsn:
            yield dsn

    def close(self) -> None:
        if self._template is not None:
            self._drop(self._template)

    def dsn_of(self, name: str) -> str:
        return urlunsplit(urlsplit(self._server_dsn)._replace(path=f"/{name}"))

    def _migrated_template(self) -> str:
        if self._template is None:
            # Here and not above: a run without PostgreSQL needs no migrations.
            from worker.adapters.postgres.migrate import migrate  # noqa: PLC0415

            template = f"{self._run}_template"
            self._execute(f'CREATE DATABASE "{template}" TEMPLATE template0')
            migrate(self.dsn_of(template))
            self._template = template
        return self._template

    @contextmanager
    def _copy_of(self, template: str) -> Iterator[str]:
        self._made += 1
        name = f"{self._run}_{self._made}"
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        try:
            yield self.dsn_of(name)
        finally:
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _execute(self, statement: str) -> None:
        asyncio.run(_execute(self._server_dsn, statement))


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
