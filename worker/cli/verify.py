"""`attribution-worker verify`: every stored share, recomputed from its stored evidence."""

import asyncio
from datetime import datetime
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from worker import app
from worker.cli.render import console, error_console
from worker.settings import load_settings


def verify(
    since: Annotated[
        datetime | None,
        typer.Option("--since", help="Only what was settled at or after this time (UTC)."),
    ] = None,
) -> None:
    """Recompute every stored attribution from its stored matrix, bit for bit; exit 1 on any difference.

    It needs nothing but read access to the database: no judge, no Kafka. An outsider can do the same from the evidence
    documents and the formulas in any language with big integers.
    """
    checked, differences = asyncio.run(verify_all(since))
    if differences:
        console.print(f"[bold red]{differences} difference(s)[/] in {checked} attributions: see above.")
        raise typer.Exit(1)
    console.print(f"{checked} attributions recomputed from their evidence: all equal, bit for bit.")


async def verify_all(since: datetime | None) -> tuple[int, int]:
    checked = differences = 0
    columns = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    async with app.open_audit(load_settings()) as audit:
        with Progress(*columns, console=error_console, transient=True) as progress:
            task = progress.add_task("verify", total=await audit.count(since))
            async for finding in audit.verify(since):
                checked += 1
                progress.advance(task)
                for difference in finding.differences:
                    differences += 1
                    error_console.print(
                        f"{finding.tenant}/{finding.answer_id} revision {finding.revision}: {difference}"
                    )
    return checked, differences
