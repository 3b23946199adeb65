"""`attribution-worker attribute`: answer events in, attributions out; no Kafka, no database."""

import asyncio
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from worker import app
from worker.cli.attribution_line import attribution_line
from worker.cli.events import EventLine, read_events
from worker.cli.render import answer_panel, console, error_console, view_of
from worker.core.attribution import ungrounded_key_points
from worker.core.model import Attribution
from worker.errors import PermanentError, RetryableError, UnavailableError, WorkerError
from worker.settings import JudgeName, Settings, load_settings

EVENTS_AT_ONCE = 16
"""An LLM judge is asked about this many answers at once; output keeps the order of the input."""


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


def attribute(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Answer events, JSON or JSON lines; - for stdin.")
    ],
    judge: Annotated[JudgeName | None, typer.Option("--judge", help="Who scores the sources.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="The LLM judge's model, such as gpt-5-mini.")] = None,
    policy: Annotated[str | None, typer.Option("--policy", help="max, top_k or rank_weighted.")] = None,
    k: Annotated[int | None, typer.Option("--k", help="top_k: how many supports of a key point add up.")] = None,
    omega: Annotated[
        str | None, typer.Option("--omega", help="rank_weighted: weights by rank, from 1: 1,1/2,1/4.")
    ] = None,
    grouping: Annotated[str | None, typer.Option("--grouping", help="source, or owner (Owen value).")] = None,
    output: Annotated[OutputFormat, typer.Option("--format", help="A table for people, JSON lines for programs.")] = (
        OutputFormat.TABLE
    ),
) -> None:
    """Attribute answer events from files, exactly as the worker would, and print who earned what.

    A line that cannot be used is reported as file:line with the field and what to do; the others are still done, and
    the exit code is 1.

    Example: `attribution-worker attribute answers.jsonl --grouping owner --format json | jq .sources`
    """
    settings = app.override_method(
        load_settings(),
        judge=judge,
        model=model,
        policy=policy,
        k=k,
        omega=None if omega is None else tuple(part.strip() for part in omega.split(",")),
        grouping=grouping,
    )
    failures = asyncio.run(attribute_all(settings, list(all_events(files)), output))
    if failures:
        error_console.print(f"[bold red]{failures}[/] event(s) could not be attributed: see above.")
        raise typer.Exit(1)


def all_events(files: list[str]) -> Iterator[EventLine]:
    for name in files:
        if name == "-":
            yield from read_events("<stdin>", sys.stdin.buffer.read())
        elif not Path(name).is_file():
            raise typer.BadParameter(f"{name}: no such file", param_hint="FILE…")
        else:
            yield from read_events(name, Path(name).read_bytes())


async def attribute_all(settings: Settings, events: list[EventLine], output: OutputFormat) -> int:
    """Print each attribution, in order, as it comes; the number of events that failed."""
    failures = 0
    at_once = asyncio.Semaphore(EVENTS_AT_ONCE)
    async with app.open_attributor(settings) as attribute_one:

        async def attributed(event: EventLine) -> Attribution | WorkerError:
            async with at_once:
                try:
                    return await attribute_one(event.record)
                except (PermanentError, RetryableError, UnavailableError) as error:
                    return error

        with Progress(console=error_console, transient=True, disable=not error_console.is_terminal) as progress:
            async with asyncio.TaskGroup() as tasks:
                running = [(event, tasks.create_task(attributed(event))) for event in events]
                for event, task in progress.track(running, description="attributing"):
                    outcome = await task
                    if isinstance(outcome, WorkerError):
                        failures += 1
                        error_console.print(f"{event.place}: {problem_of(outcome)}", soft_wrap=True, markup=False)
                    else:
                        print_attribution(outcome, output)
    return failures


def print_attribution(attribution: Attribution, output: OutputFormat) -> None:
    match output:
        case OutputFormat.JSON:
            sys.stdout.write(attribution_line(attribution) + "\n")
        case OutputFormat.TABLE:
            texts = [point.text for point in ungrounded_key_points(attribution.judgement)]
            console.print(answer_panel(view_of(attribution, texts)))
            console.print()


def problem_of(error: WorkerError) -> str:
    return error.detail if isinstance(error, PermanentError) else str(error)
