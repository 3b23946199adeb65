"""Bring a database to the newest revision and make its partitions."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from alembic import command
from alembic.config import Config
from pydantic import SecretStr
from sqlalchemy import Connection, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

import worker
from worker.adapters.postgres.database import errors_translated
from worker.adapters.postgres.engine import open_engine
from worker.adapters.postgres.partitions import drop_expired_partitions, ensure_partitions
from worker.errors import FatalError
from worker.settings import PostgresSettings

MIGRATION_STATEMENT_TIMEOUT_S = 3_600.0


def migrate(dsn: str, *, partitions_ahead_months: int = 3, retention_months: int | None = None) -> None:
    """`migrate_database` for callers without a running event loop, and, in a thread of its own, for those with one."""
    settings = PostgresSettings(
        dsn=SecretStr(dsn), partitions_ahead_months=partitions_ahead_months, retention_months=retention_months
    )
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, migrate_database(settings)).result()


async def migrate_database(settings: PostgresSettings) -> None:
    """Upgrade to the newest revision, make partitions ahead, drop those past the retention. Safe to run again.

    Several may run at once: one works, the others wait their lock timeout for it.

    Raises:
        UnavailableError: the database cannot be reached, or a table stayed locked.
        FatalError: the role may not do this, or there is no such database, or a pooler is in between.
    """
    if settings.transaction_pooling:
        # The lock that lets one of many migrate belongs to a session, and a pooler hands out transactions.
        raise FatalError("migrations need the server itself, not a pooler: unset postgres.transaction_pooling")
    patient = settings.model_copy(update={"statement_timeout_s": MIGRATION_STATEMENT_TIMEOUT_S})
    with errors_translated():
        async with open_engine(patient) as engine:
            async with engine.connect() as connection:
                await _upgrade(connection)
            await ensure_partitions(engine, ahead_months=settings.partitions_ahead_months)
            if settings.retention_months is not None:
                await drop_expired_partitions(engine, retention_months=settings.retention_months)


def migrations_directory() -> Path:
    """Beside the package in a checkout, inside it in an installed wheel."""
    package = Path(worker.__file__).parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def alembic_config(connection: Connection) -> Config:
    config = Config()
    # Config interpolates percent signs.
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


async def _upgrade(connection: AsyncConnection) -> None:
    lock = func.hashtextextended("attribution-worker migrate", 0)
    await connection.execute(select(func.pg_advisory_lock(lock)))
    await connection.commit()
    try:
        await connection.run_sync(lambda sync: command.upgrade(alembic_config(sync), "head"))
    finally:
        await connection.execute(select(func.pg_advisory_unlock(lock)))
        await connection.commit()
