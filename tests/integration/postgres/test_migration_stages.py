"""Migrations around a rollout: what the next versions of this project will do to a database that is in use."""

import shutil
from pathlib import Path

import asyncpg
import pytest

from tests.support.command_line import RunHere
from worker.adapters.postgres import migrate as migrating
from worker.adapters.postgres.migrate import Migrated, migrate_database, migrations_directory
from worker.adapters.postgres.stages import Stage
from worker.errors import FatalError
from worker.settings import PostgresSettings

pytestmark = pytest.mark.postgres

REVISION = """
from alembic import op

revision = "{revision}"
down_revision = "{down_revision}"


def upgrade() -> None:
    op.execute("{statement}")
"""
NEWEST = max((migrations_directory() / "versions").glob("[0-9]*.py")).stem
FIRST = int(NEWEST[:4]) + 1
ADDS, DROPS, ADDS_AGAIN = f"{FIRST:04}_pre_adds", f"{FIRST + 1:04}_post_drops", f"{FIRST + 2:04}_pre_adds_again"


def release(directory: Path, *names: str) -> Path:
    """The migrations of a later version of ours, which has these as well: each makes a table of its name."""
    shutil.copytree(migrations_directory(), directory, ignore=shutil.ignore_patterns("__pycache__"))
    for name in names:
        revision = int(name[:4])
        text = REVISION.format(
            revision=f"{revision:04}", down_revision=f"{revision - 1:04}", statement=f"CREATE TABLE made_by_{name} ()"
        )
        (directory / "versions" / f"{name}.py").write_text(text, encoding="utf-8")
    return directory


def settings_of(dsn: str) -> PostgresSettings:
    return PostgresSettings.model_validate({"dsn": dsn})


async def made(sql: asyncpg.Connection) -> list[str]:
    rows = await sql.fetch("SELECT relname FROM pg_class WHERE relname LIKE 'made\\_by\\_%' ORDER BY 1")
    return [row["relname"].removeprefix("made_by_") for row in rows]


async def test_a_rollout_adds_first_and_drops_when_the_old_workers_have_gone(
    postgres_dsn: str, sql: asyncpg.Connection, tmp_path: Path
) -> None:
    settings, directory = settings_of(postgres_dsn), release(tmp_path / "next", ADDS, DROPS)
    for _ in range(2):
        told = await migrate_database(settings, Stage.PRE, directory=directory)
        assert told.waiting == [DROPS]
        assert await made(sql) == [ADDS]
    assert await migrate_database(settings, Stage.POST, directory=directory) == Migrated([DROPS], [])
    assert await made(sql) == [ADDS, DROPS]
    for stage in Stage:
        assert await migrate_database(settings, stage, directory=directory) == Migrated([], [])


async def test_what_comes_after_a_rollout_is_refused_before_it_and_changes_nothing(
    postgres_dsn: str, sql: asyncpg.Connection, tmp_path: Path
) -> None:
    settings, directory = settings_of(postgres_dsn), release(tmp_path / "next", ADDS, DROPS)
    with pytest.raises(FatalError, match=f"{ADDS} is missing"):
        await migrate_database(settings, Stage.POST, directory=directory)
    assert await made(sql) == []


async def test_two_versions_at_once_go_through_two_rollouts(
    postgres_dsn: str, sql: asyncpg.Connection, tmp_path: Path
) -> None:
    settings, directory = settings_of(postgres_dsn), release(tmp_path / "after-next", ADDS, DROPS, ADDS_AGAIN)
    with pytest.raises(FatalError, match=f"{ADDS_AGAIN} must run"):
        await migrate_database(settings, Stage.PRE, directory=directory)
    assert await made(sql) == []

    await migrate_database(settings, Stage.PRE, directory=release(tmp_path / "next", ADDS, DROPS))
    assert await migrate_database(settings, Stage.POST, directory=directory) == Migrated([DROPS], [ADDS_AGAIN])
    assert await migrate_database(settings, Stage.PRE, directory=directory) == Migrated([ADDS_AGAIN], [])
    assert await made(sql) == [ADDS, DROPS, ADDS_AGAIN]


async def test_a_new_database_is_given_everything_before_its_first_workers(
    empty_postgres_dsn: str, tmp_path: Path
) -> None:
    directory = release(tmp_path / "after-next", ADDS, DROPS, ADDS_AGAIN)
    with pytest.raises(FatalError, match="0001_pre_tables is missing"):
        await migrate_database(settings_of(empty_postgres_dsn), Stage.POST, directory=directory)
    told = await migrate_database(settings_of(empty_postgres_dsn), Stage.PRE, directory=directory)
    assert (told.applied[-1], told.waiting) == (ADDS_AGAIN, [])


async def test_after_a_rollback_the_older_version_leaves_the_schema_alone_and_makes_its_partitions(
    postgres_dsn: str, sql: asyncpg.Connection, tmp_path: Path
) -> None:
    settings = settings_of(postgres_dsn)
    await migrate_database(settings, Stage.PRE, directory=release(tmp_path / "next", ADDS, DROPS))
    further = settings.model_copy(update={"partitions_ahead_months": 5})
    for stage in Stage:
        assert (await migrate_database(further, stage)).newer_revision == ADDS[:4]
    assert await sql.fetchval("SELECT count(*) FROM pg_inherits WHERE inhparent = 'attributions'::regclass") == 7


def test_the_command_says_what_is_left_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, postgres_dsn: str, tmp_path: Path
) -> None:
    monkeypatch.setattr(migrating, "migrations_directory", lambda: release(tmp_path / "next", ADDS, DROPS))
    ran = RunHere(capsys, monkeypatch)("migrate", "--stage", "pre", env={"ATTRIBUTION_POSTGRES__DSN": postgres_dsn})
    assert ran.exit_code == 0
    assert f"{DROPS} waits" in " ".join(ran.stdout.split())
