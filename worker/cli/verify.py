"""`attribution-worker verify`: every stored share, recomputed from its stored evidence."""

import asyncio
from datetime import datetime
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from worker import app
from worker.cli.terminal import console, error_console, plain
from worker.settings import load_settings

TIME_FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d %H:%M:%S%z"]


def verify(
    since: Annotated[
        datetime | None,
        typer.Option(
            "--since",
            formats=TIME_FORMATS,
            metavar="TIME",
            help="Only what was settled at or after this time, UTC without a zone: 2026-01-31, 2026-01-31T12:00:00Z.",
        ),
    ] = None,
) -> None:
    """Recompute every stored attribution from its stored matrix, bit for bit; exit 1 on any difference.

    It needs nothing but read access to the database: no judge, no Kafka. An outsider can do the same from the evidence
    documents and the formulas in any language with big integers.

    Each difference is a line on stderr: tenant/answer_id, revision, what is stored and what it should be.
    """
    checked, differing = asyncio.run(verify_all(since))
    if differing:
        console.print(f"[bold red]{differing} of {checked} attributions differ[/] from their evidence: see above.")
        raise typer.Exit(1)
    if not checked:
        console.print("Nothing to verify: no attribution was settled" + (f" since {since}." if since else " yet."))
        return
    console.print(f"{checked} attributions recomputed from their evidence: all equal, bit for bit.")


async def verify_all(since: datetime | None) -> tuple[int, int]:
    """How many attributions were recomputed, and how many of them differ."""
    checked = differing = 0
    columns = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    async with app.open_audit(load_settings()) as audit:
        with Progress(
            *columns, console=error_console, transient=True, disable=not error_console.is_terminal
        ) as progress:
            task = progress.add_task("verify", total=await audit.count(since))
            async for finding in audit.verify(since):
                checked += 1
                differing += bool(finding.differences)
                progress.advance(task)
                for difference in finding.differences:
                    whose = f"{plain(finding.tenant)}/{plain(finding.answer_id)} revision {finding.revision}"
                    error_console.print(f"{whose}: {plain(difference)}", soft_wrap=True)
    return checked, differing
