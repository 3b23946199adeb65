"""`attribution-worker attribute`: answer events in, attributions out; no Kafka, no database."""

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from typing import Annotated, assert_never

import typer
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from worker import app
from worker.cli.attribution_line import attribution_line
from worker.cli.events import BadLine, EventFiles, EventLine
from worker.cli.render import answer_panel, view_of
from worker.cli.terminal import console, error_console
from worker.core.attribution import ungrounded_key_points
from worker.core.model import Attribution
from worker.core.policy import Grouping, PolicyName
from worker.core.records import Record
from worker.errors import FatalError, PermanentError, RetryableError, UnavailableError, WorkerError
from worker.settings import JudgeName, Settings, load_settings

EVENTS_AT_ONCE = 16
"""An LLM judge is asked about this many answers at once; output keeps the order of the input."""

Result = Attribution | WorkerError | str
"""An attribution, or why there is none."""


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


def attribute(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE…", help="Answer events: one a line, or one as a document; - reads stdin."),
    ],
    judge: Annotated[JudgeName | None, typer.Option("--judge", help="Who scores the sources.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="The LLM judge's model, such as gpt-5-mini.")] = None,
    policy: Annotated[
        PolicyName | None, typer.Option("--policy", help="How a key point is divided among its supporters.")
    ] = None,
    k: Annotated[int | None, typer.Option("--k", min=1, help="top_k: how many supports of a key point add up.")] = None,
    omega: Annotated[
        str | None, typer.Option("--omega", help="rank_weighted: weights by rank, from 1: 1,1/2,1/4.")
    ] = None,
    grouping: Annotated[
        Grouping | None, typer.Option("--grouping", help="Who is counted: each source, or each owner (Owen value).")
    ] = None,
    output: Annotated[
        OutputFormat, typer.Option("--format", help="table: bars for people; json: one line per answer, exact units.")
    ] = OutputFormat.TABLE,
) -> None:
    """Attribute answer events from files, exactly as the worker would, and print who earned what.

    An event needs `answer_id`, `occurred_at`, `query`, `answer` and `sources` (each `source_id`, `text`, and `owner_id`
    if it has one); schemas/examples/valid has some. One that cannot be used is reported on stderr as file:line with the
    field and what is wrong with it; the others are still done, and the exit code is 1.

    Example: `attribution-worker attribute worker/demo/sample_answers.jsonl --grouping owner`

    Example: `tail -1000 answers.jsonl | attribution-worker attribute - --format json | jq -c '[.answer_id, .utility]'`
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
    require_effect(settings, "--k", k, PolicyName.TOP_K)
    require_effect(settings, "--omega", omega, PolicyName.RANK_WEIGHTED)
    results = asyncio.run(attribute_all(settings, opened(files), output))
    if results.failed:
        error_console.print(
            f"[bold red]{results.failed} not attributed[/], {results.attributed} attributed: see above."
        )
        raise typer.Exit(1)
    if not results.attributed:
        error_console.print("No events: the input is empty.")


def require_effect(settings: Settings, option: str, value: object, policy: PolicyName) -> None:
    """Refuses an option that the policy would pass over in silence."""
    if value is not None and settings.credit.policy != policy:
        problem = f"it belongs to --policy {policy}, and the policy is {settings.credit.policy}"
        raise typer.BadParameter(problem, param_hint=option)


def opened(names: list[str]) -> EventFiles:
    try:
        return EventFiles(names)
    except IsADirectoryError as error:
        problem = f"{error.filename} is a directory: name its files, {error.filename}/*.jsonl"
        raise typer.BadParameter(problem, param_hint="FILE…") from None
    except OSError as error:
        raise typer.BadParameter(f"{error.filename}: {error.strerror}", param_hint="FILE…") from None


class Results:
    """Prints each result as it comes, and counts."""

    def __init__(self, output: OutputFormat, progress: Progress) -> None:
        self.attributed = 0
        self.failed = 0
        self._output = output
        self._progress = progress
        self._task = progress.add_task("attribute", total=None)

    def add(self, place: str, result: Result) -> None:
        self._progress.advance(self._task)
        if isinstance(result, Attribution):
            self.attributed += 1
            print_attribution(result, self._output)
        else:
            self.failed += 1
            error_console.print(f"{place}: {told(result)}", soft_wrap=True, markup=False)


async def attribute_all(settings: Settings, items: Iterable[EventLine | BadLine], output: OutputFormat) -> Results:
    """Print each attribution, in order, as it comes."""
    # Only where the results go elsewhere: among them it would be in the way. Without redirection: rich would send what
    # is written to stdout to the progress bar's stream.
    shown = error_console.is_terminal and not console.is_terminal
    columns = (SpinnerColumn(), MofNCompleteColumn(), TextColumn("events"))
    async with app.open_attributor(settings) as attribute_one:
        with Progress(
            *columns, console=error_console, transient=True, disable=not shown, redirect_stdout=False
        ) as progress:
            results = Results(output, progress)
            await in_order(attribute_one, items, results.add)
    return results


async def in_order(
    attribute_one: Callable[[Record], Awaitable[Attribution]],
    items: Iterable[EventLine | BadLine],
    report: Callable[[str, Result], None],
) -> None:
    """Report what became of each item; a bounded number is worked on ahead of the one awaited.

    Raises:
        FatalError: nothing more can be attributed.
        BrokenPipeError: nobody reads the results any more.
    """

    async def result_of(item: EventLine | BadLine) -> Result:
        try:
            return item.problem if isinstance(item, BadLine) else await attribute_one(item.record)
        except WorkerError as error:
            return error

    ahead: deque[tuple[str, asyncio.Task[Result]]] = deque()

    async def report_first() -> None:
        place, task = ahead.popleft()
        result = await task
        if isinstance(result, FatalError):
            raise result
        report(place, result)

    try:
        async with asyncio.TaskGroup() as tasks:
            for item in items:
                ahead.append((item.place, tasks.create_task(result_of(item))))
                if len(ahead) == EVENTS_AT_ONCE:
                    await report_first()
            while ahead:
                await report_first()
    except ExceptionGroup as group:
        # One error ended it and cancelled the others; that tasks were grouped is no caller's affair.
        raise group.exceptions[0] from None


def print_attribution(attribution: Attribution, output: OutputFormat) -> None:
    match output:
        case OutputFormat.JSON:
            # JSON is UTF-8 whatever the terminal speaks.
            sys.stdout.buffer.write(attribution_line(attribution).encode() + b"\n")
            sys.stdout.buffer.flush()
        case OutputFormat.TABLE:
            texts = [point.text for point in ungrounded_key_points(attribution.judgement)]
            console.print(answer_panel(view_of(attribution, texts)))
            console.print()
        case _:
            assert_never(output)


def told(problem: WorkerError | str) -> str:
    match problem:
        case PermanentError():
            return f"{problem.reason.value}: {problem.detail}"
        case RetryableError() | UnavailableError():
            return f"not judged: {problem}"
        case _:
            return str(problem)
