"""Bring a database to the newest revision, in one go or around a rollout, and make its partitions."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from pydantic import SecretStr
from sqlalchemy import Connection, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

import worker
from worker.adapters.postgres.database import errors_translated
from worker.adapters.postgres.engine import open_engine
from worker.adapters.postgres.forgetting import forget_answers
from worker.adapters.postgres.partitions import drop_expired_partitions, ensure_partitions
from worker.adapters.postgres.stages import Migration, Stage, chosen
from worker.errors import FatalError
from worker.settings import PostgresSettings

MIGRATION_STATEMENT_TIMEOUT_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Migrated:
    """Names of the migrations that were applied now, and of those that wait for the other stage."""

    applied: Sequence[str]
    waiting: Sequence[str]
    newer_revision: str | None = None
    """The database's, where a newer version has migrated it; the version before works on it as it is."""


def migrate(dsn: str, *, partitions_ahead_months: int = 3, retention_months: int | None = None) -> None:
    """`migrate_database` for callers without a running event loop, and, in a thread of its own, for those with one."""
    settings = PostgresSettings(
        dsn=SecretStr(dsn), partitions_ahead_months=partitions_ahead_months, retention_months=retention_months
    )
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, migrate_database(settings)).result()


async def migrate_database(
    settings: PostgresSettings, stage: Stage = Stage.ALL, *, directory: Path | None = None
) -> Migrated:
    """Upgrade as far as the stage goes, make partitions ahead, drop what is past the retention. Safe to run again.

    Several may run at once: one works, the others wait their lock timeout for it. What is applied is applied in one
    transaction. `directory` holds the migrations; by default our own.

    Raises:
        UnavailableError: the database cannot be reached, or a table stayed locked.
        FatalError: the role may not do this, or there is no such database, or a pooler is in between, or migrations of
            the other stage come first.
    """
    if settings.transaction_pooling:
        # The lock that lets one of many migrate belongs to a session, and a pooler hands out transactions.
        raise FatalError("migrations need the server itself, not a pooler: unset postgres.transaction_pooling")
    patient = settings.model_copy(update={"statement_timeout_s": MIGRATION_STATEMENT_TIMEOUT_S})
    with errors_translated():
        async with open_engine(patient) as engine:
            async with engine.connect() as connection:
                migrated = await _upgrade(connection, stage, directory or migrations_directory())
            await ensure_partitions(engine, ahead_months=settings.partitions_ahead_months)
            if settings.retention_months is not None:
                await drop_expired_partitions(engine, retention_months=settings.retention_months)
            if settings.answers_retention_months is not None:
                await forget_answers(engine, retention_months=settings.answers_retention_months)
    return migrated


def migrations_directory() -> Path:
    """Beside the package in a checkout, inside it in an installed wheel."""
    package = Path(worker.__file__).parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def alembic_config(connection: Connection, directory: Path) -> Config:
    config = Config()
    # Config interpolates percent signs.
    config.set_main_option("script_location", str(directory).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


async def _upgrade(connection: AsyncConnection, stage: Stage, directory: Path) -> Migrated:
    lock = func.hashtextextended("attribution-worker migrate", 0)
    await connection.execute(select(func.pg_advisory_lock(lock)))
    await connection.commit()
    try:
        return await connection.run_sync(lambda sync: _apply(sync, stage, directory))
    finally:
        await connection.execute(select(func.pg_advisory_unlock(lock)))
        await connection.commit()


def _apply(connection: Connection, stage: Stage, directory: Path) -> Migrated:
    config = alembic_config(connection, directory)
    current = MigrationContext.configure(connection).get_current_revision()
    history = [_migration(script) for script in ScriptDirectory.from_config(config).walk_revisions()][::-1]
    if current is not None and current > history[-1].revision:
        return Migrated(applied=(), waiting=(), newer_revision=current)
    pending = [migration for migration in history if current is None or migration.revision > current]
    ready = chosen(pending, stage, is_new=current is None)
    # Else what the questions above began would be undone with the migrations, at the end of the connection.
    connection.commit()
    if ready:
        command.upgrade(config, ready[-1].revision)
    names = [migration.name for migration in pending]
    return Migrated(applied=names[: len(ready)], waiting=names[len(ready) :])


def _migration(script: Script) -> Migration:
    return Migration(script.revision, Path(script.path).stem)
