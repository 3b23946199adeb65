"""`attribution-worker migrate`: the database, up to date."""

import asyncio
from typing import Annotated

import typer

from worker import app
from worker.cli.terminal import console
from worker.settings import load_settings

Writer = Annotated[
    str | None, typer.Option("--grant-writer", metavar="ROLE", help="The workers' database role: adds, never changes.")
]
Operator = Annotated[
    str | None, typer.Option("--grant-operator", metavar="ROLE", help="May run `dead-letters` and `resume`.")
]
Reader = Annotated[
    str | None, typer.Option("--grant-reader", metavar="ROLE", help="Reads views and results, and may `verify`.")
]

Stage = Annotated[
    app.Stage,
    typer.Option(
        "--stage",
        help="pre: what this version's workers need, harmless to those of the version before: run it before a rollout. "
        "post: what only the version before still used: once its last worker has stopped. all: both, when no worker is "
        "running.",
    ),
]


def migrate(
    stage: Stage = app.Stage.ALL, writer: Writer = None, operator: Operator = None, reader: Reader = None
) -> None:
    """Create or upgrade the tables, views and monthly partitions in the configured database.

    Run it as the owner of the schema before the workers of a new version start, and once a month for the partitions to
    come; running it again changes nothing. With --grant-… an existing database role gets exactly the rights it needs
    (others on these tables are taken from it); give them again with every new version.

    Around a rollout: `attribution-worker migrate --stage pre`, new workers in, old ones out, `--stage post`. Migrations
    keep their order: a stage that would have to pass over one of the other stage changes nothing and says what to do. A
    new database gets everything with pre.

    Example: `attribution-worker migrate --grant-writer attribution_writer --grant-reader analysts`
    """
    settings = load_settings()
    asked = {app.Role.WRITER: writer, app.Role.OPERATOR: operator, app.Role.READER: reader}
    roles = {role: name for role, name in asked.items() if name is not None}
    if len(set(roles.values())) < len(roles):
        raise typer.BadParameter("one database role cannot be two things", param_hint="--grant-…")
    migrated = asyncio.run(app.migrate(settings, roles, stage))
    console.print(_told(migrated, stage) + "".join(f" {name} is its {role}." for role, name in roles.items()))


def _told(migrated: app.Migrated, stage: app.Stage) -> str:
    if migrated.newer_revision is not None:
        return f"A newer version has brought the database to revision {migrated.newer_revision}: nothing to migrate."
    if not migrated.waiting:
        return "The database is up to date."
    held = migrated.waiting[0]
    if stage is app.Stage.POST:
        return f"What the version before used is gone. {held} waits for `--stage pre`, before the next rollout."
    return (
        f"The database is ready for this version's workers. {held} waits until the last worker of the version before "
        "has stopped: then run `attribution-worker migrate --stage post`."
    )
