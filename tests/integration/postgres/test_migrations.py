"""A migrated database is what the tables say, and explains itself."""

import asyncio

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from pydantic import SecretStr
from sqlalchemy import Connection, text

from tests.support.databases import Databases
from worker.adapters.postgres.engine import open_engine
from worker.adapters.postgres.migrate import migrate, migrate_database, migrations_directory
from worker.adapters.postgres.tables import PARTITIONED_BY, metadata
from worker.errors import FatalError, UnavailableError
from worker.settings import PostgresSettings

pytestmark = pytest.mark.postgres

CONSTRAINTS = text(
    "SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid) FROM pg_constraint "
    "WHERE connamespace = 'public'::regnamespace AND conparentid = 0 ORDER BY 1, 2"
)
INDEXES = text("SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2")
TABLES = text(
    "SELECT c.relname, c.relkind, c.reloptions, pg_get_partkeydef(c.oid) FROM pg_class c "
    "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY 1"
)
OURS = tuple(table.name for table in metadata.sorted_tables)


def described(connection: Connection) -> dict[str, list[tuple[object, ...]]]:
    """Constraints, indexes and storage of our tables, without their partitions."""
    return {
        name: [tuple(row) for row in connection.execute(query) if row[0] in OURS]
        for name, query in (("constraints", CONSTRAINTS), ("indexes", INDEXES), ("tables", TABLES))
    }


def settings_of(dsn: str) -> PostgresSettings:
    return PostgresSettings(dsn=SecretStr(dsn))


async def test_a_migrated_database_is_exactly_what_the_tables_say(postgres_dsn: str, empty_postgres_dsn: str) -> None:
    async with open_engine(settings_of(postgres_dsn)) as engine, engine.connect() as connection:
        migrated = await connection.run_sync(described)
        differences = await connection.run_sync(
            lambda sync: compare_metadata(
                MigrationContext.configure(
                    sync,
                    opts={
                        "compare_type": True,
                        "compare_server_default": True,
                        "include_name": lambda name, kind, _parents: kind != "table" or name in OURS,
                    },
                ),
                metadata,
            )
        )
    assert differences == []
    async with open_engine(settings_of(empty_postgres_dsn)) as engine, engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
        assert await connection.run_sync(described) == migrated


async def test_every_table_view_and_column_explains_itself(sql: asyncpg.Connection) -> None:
    silent = await sql.fetch(
        "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 "
        "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> 'alembic_version' "
        "AND NOT c.relname LIKE '%\\_default' AND NOT a.attisdropped AND col_description(c.oid, a.attnum) IS NULL "
        "UNION ALL SELECT relname, '' FROM pg_class WHERE relnamespace = 'public'::regnamespace "
        "AND relkind IN ('p', 'v') AND obj_description(oid) IS NULL"
    )
    assert silent == []


async def test_partitions_are_there_for_this_month_and_those_ahead(sql: asyncpg.Connection) -> None:
    for table in PARTITIONED_BY:
        names = await sql.fetch(
            "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = $1::regclass", table.name
        )
        assert len(names) == 1 + 1 + 3, "default, this month, three ahead"


async def test_migrating_again_or_at_the_same_time_changes_nothing(empty_postgres_dsn: str) -> None:
    settings = settings_of(empty_postgres_dsn)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(migrate_database(settings))
    async with open_engine(settings) as engine, engine.connect() as connection:
        before = await connection.run_sync(described)
    await migrate_database(settings)
    async with open_engine(settings) as engine, engine.connect() as connection:
        assert await connection.run_sync(described) == before


async def test_migrate_may_be_called_while_a_loop_is_running(empty_postgres_dsn: str) -> None:
    migrate(empty_postgres_dsn, partitions_ahead_months=1)
    async with open_engine(settings_of(empty_postgres_dsn)) as engine, engine.connect() as connection:
        count = text("SELECT count(*) FROM pg_inherits WHERE inhparent = 'attributions'::regclass")
        assert (await connection.execute(count)).scalar_one() == 3


async def test_a_migration_does_not_queue_behind_a_long_reader_for_ever(
    empty_postgres_dsn: str,
) -> None:
    impatient = settings_of(empty_postgres_dsn).model_copy(update={"lock_timeout_s": 0.05})
    blocker = await asyncpg.connect(empty_postgres_dsn)
    try:
        await blocker.execute("SELECT pg_advisory_lock(hashtextextended('attribution-worker migrate', 0))")
        with pytest.raises(UnavailableError, match="55P03"):
            await migrate_database(impatient)
    finally:
        await blocker.close()
    await migrate_database(impatient)


async def test_a_database_that_does_not_exist_is_a_fatal_error_with_advice(postgres_server: str) -> None:
    with pytest.raises(FatalError, match=r"3D000.*postgres\.dsn"):
        await migrate_database(settings_of(Databases(postgres_server).dsn_of("nowhere")))


def test_every_revision_is_a_pair_of_files_that_says_when_it_runs() -> None:
    revisions = sorted((migrations_directory() / "versions").glob("[0-9]*.py"))
    assert revisions
    for number, path in enumerate(revisions, 1):
        assert path.stem.startswith((f"{number:04}_pre_", f"{number:04}_post_"))
        assert path.with_suffix(".sql").is_file()
