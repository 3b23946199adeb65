"""`attribution-worker topics`: the three topics, made or checked."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from worker import app
from worker.adapters.kafka.topics import TopicReport
from worker.cli.terminal import console, plain
from worker.settings import load_settings


def topics(
    check: Annotated[
        bool, typer.Option("--check", help="Only look; exit 1 when a topic is missing or different.")
    ] = False,
) -> None:
    """Create the answers, attributions and dead-letter topics, or report how existing ones differ.

    Names, partitions, replication, retention and sizes come from the settings (`attribution-worker config`, section
    kafka). An existing topic is never altered: one that differs is shown, and the exit code is 1.
    """
    settings = load_settings()
    reports = asyncio.run(app.check_topics(settings) if check else app.ensure_topics(settings))
    console.print(topics_table(reports))
    if any(report.differences for report in reports):
        raise typer.Exit(1)


def topics_table(reports: Sequence[TopicReport]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("topic", "state", "differs from the settings"):
        table.add_column(heading, overflow="fold")
    for report in reports:
        state = "created" if report.created else "exists"
        table.add_row(plain(report.topic), state, plain("; ".join(report.differences)) or "no")
    return table
