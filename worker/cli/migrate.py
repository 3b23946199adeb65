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


def migrate(writer: Writer = None, operator: Operator = None, reader: Reader = None) -> None:
    """Create or upgrade the tables, views and monthly partitions in the configured database.

    Run it as the owner of the schema before the workers of a new version start, and once a month for the partitions to
    come; running it again changes nothing. With --grant-… an existing database role gets exactly the rights it needs
    (others on these tables are taken from it); give them again with every new version.

    Example: `attribution-worker migrate --grant-writer attribution_writer --grant-reader analysts`
    """
    settings = load_settings()
    asked = {app.Role.WRITER: writer, app.Role.OPERATOR: operator, app.Role.READER: reader}
    roles = {role: name for role, name in asked.items() if name is not None}
    if len(set(roles.values())) < len(roles):
        raise typer.BadParameter("one database role cannot be two things", param_hint="--grant-…")
    asyncio.run(app.migrate(settings, roles))
    console.print("The database is up to date." + "".join(f" {name} is its {role}." for role, name in roles.items()))
