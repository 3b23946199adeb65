"""`attribution-worker topics`: the three topics, made or checked."""

import asyncio
from typing import Annotated

import typer

from worker import app
from worker.cli.render import console, topics_table
from worker.settings import load_settings


def topics(
    check: Annotated[
        bool, typer.Option("--check", help="Only look; exit 1 when a topic is missing or different.")
    ] = False,
) -> None:
    """Create the answers, attributions and dead-letter topics, or report how existing ones differ.

    Partitions, replication, retention and sizes come from the settings. An existing topic is never altered.
    """
    settings = load_settings()
    rows = asyncio.run(app.check_topics(settings) if check else app.ensure_topics(settings))
    console.print(topics_table(rows))
    if any(row.differences for row in rows):
        raise typer.Exit(1)
