"""`attribution-worker migrate`: the database, up to date."""

import asyncio

from worker import app
from worker.cli.terminal import console
from worker.settings import load_settings


def migrate() -> None:
    """Create or upgrade the tables, views and monthly partitions in the configured database.

    Run it as the owner of the schema before the workers of a new version start; running it again changes nothing.
    """
    settings = load_settings()
    asyncio.run(app.migrate(settings))
    console.print("The database is up to date.")
