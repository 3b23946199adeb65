"""One connection pool per process, with every timeout set, on the server as well."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import asyncpg
from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from worker.adapters.postgres.failures import TlsRefusedError
from worker.settings import ConfigurationError, PostgresSettings

APPLICATION_NAME = "attribution-worker"
FINDERS = 1
"""Look-ups of settled answers in flight at once; each takes every key that waits."""
JUDGING = 6
"""What a language model's judge has in flight at once: intents, ends, responses, usage, leases, copied judgements."""
OTHERS = 3
"""Connections beside writers and finders: dead letters, the relay, and partitions or a report."""


TLS_ASKED_FOR = ("require", "verify-ca", "verify-full")
"""Values of the DSN's `sslmode` that take no unencrypted connection."""


def server_settings(settings: PostgresSettings) -> Mapping[str, str]:
    return {
        "application_name": APPLICATION_NAME,
        "statement_timeout": _milliseconds(settings.statement_timeout_s),
        "lock_timeout": _milliseconds(settings.lock_timeout_s),
        "idle_in_transaction_session_timeout": _milliseconds(settings.idle_in_transaction_timeout_s),
        # A generic plan made while a table was empty scans it whole until the next ANALYZE.
        "plan_cache_mode": "force_custom_plan",
    }


def answer_timeout_s(settings: PostgresSettings) -> float:
    """How long an answer is waited for. The server ends a statement before; this is for a server that went silent."""
    return 2 * settings.statement_timeout_s


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1_000)))


@asynccontextmanager
async def open_engine(settings: PostgresSettings) -> AsyncIterator[AsyncEngine]:
    """An engine whose connections are closed when the context is left; connects on first use.

    Raises:
        ConfigurationError: a file that the DSN names cannot be read.
    """
    _require_files(settings.dsn.get_secret_value())
    engine = _pooled_by_server(settings) if settings.transaction_pooling else _pooled_here(settings)
    try:
        yield engine
    finally:
        await engine.dispose()


def _require_files(dsn: str) -> None:
    """The driver says of a missing certificate what it says of a server that is down."""
    named = dict(parse_qsl(urlsplit(dsn).query))
    for name in ("sslrootcert", "sslcert", "sslkey"):
        try:
            Path(named.get(name, os.devnull)).read_bytes()
        except OSError as error:
            raise ConfigurationError(f"postgres.dsn: {name} cannot be read: {error.strerror}") from None


async def _connected(settings: PostgresSettings, **options: object) -> asyncpg.Connection:
    """Raises TlsRefusedError where TLS is asked for and refused: a server that goes down answers in the same words."""
    dsn = settings.dsn.get_secret_value()
    try:
        return await asyncpg.connect(
            dsn, timeout=settings.connect_timeout_s, command_timeout=answer_timeout_s(settings), **options
        )
    except ConnectionError as error:
        asked_for = dict(parse_qsl(urlsplit(dsn).query)).get("sslmode") in TLS_ASKED_FOR
        if asked_for and "rejected SSL upgrade" in str(error):
            raise TlsRefusedError(str(error)) from error
        raise


def _pooled_here(settings: PostgresSettings) -> AsyncEngine:
    async def connect(*_arguments: object, **_keywords: object) -> asyncpg.Connection:
        return await _connected(settings, server_settings=dict(server_settings(settings)))

    return create_async_engine(
        "postgresql+asyncpg://",
        connect_args={"async_creator_fn": connect},
        hide_parameters=True,
        pool_size=settings.writers + FINDERS + JUDGING + OTHERS,
        max_overflow=0,
        pool_timeout=settings.connect_timeout_s,
        pool_recycle=settings.pool_recycle_s,
        # No pool_pre_ping: three round trips a transaction. A dead connection is met by doing the work again, whole,
        # which has to work anyway for one that dies later.
    )


def _pooled_by_server(settings: PostgresSettings) -> AsyncEngine:
    """For a pooler in transaction mode: nothing that outlives a transaction, so no named prepared statements."""

    async def connect(*_arguments: object, **_keywords: object) -> asyncpg.Connection:
        return await _connected(settings, statement_cache_size=0)

    return create_async_engine(
        "postgresql+asyncpg://",
        connect_args={
            "async_creator_fn": connect,
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": lambda: f"attribution_{uuid4().hex}",
        },
        hide_parameters=True,
        poolclass=NullPool,
    )
