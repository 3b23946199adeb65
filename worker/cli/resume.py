"""`attribution-worker resume`: intake again after the dead-letter limits stopped it."""

import asyncio
from typing import Annotated

import typer

from worker import app
from worker.cli.terminal import console
from worker.settings import load_settings


def resume(
    reason: Annotated[str, typer.Option("--reason", help="What was wrong and what was done; kept in the database.")],
) -> None:
    """Let the workers take in records again after the dead-letter limits stopped them.

    Past a limit every worker stops and refuses to start: a bad deploy must not empty the topic into the dead letters.
    Look at the `dead_letters` table first (`SELECT reason, detail, count(*) FROM dead_letters GROUP BY 1, 2`), fix the
    cause, then resume; the limits count anew from here.
    """
    asyncio.run(app.resume(load_settings(), reason))
    console.print("Resumed: the dead-letter limits count from now on. Start the workers again.")
