"""`attribution-worker evaluate`: how well credit finds the sources that people labelled relevant."""

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, assert_never

import typer
from rich.console import Console
from rich.progress import track

from worker.cli.evaluation_lines import LabelledLine, Problem, read_lines
from worker.cli.evaluation_report import RECORDED, Evaluated, json_lines, tables
from worker.core.evaluation import score_matrix
from worker.errors import WorkerError
from worker.ports import Judge
from worker.settings import JudgeName, Settings, load_settings
from worker.telemetry import Telemetry


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


def evaluate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", exists=True, dir_okay=False, help="Labelled answers, JSON lines.")
    ],
    judge: Annotated[
        str | None, typer.Option("--judge", help=f"Who scores; '{RECORDED}' for only what the files record.")
    ] = None,
    output: Annotated[OutputFormat, typer.Option("--format", help="A table for people, JSON lines for programs.")] = (
        OutputFormat.TABLE
    ),
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every answer's figures too.")] = False,
) -> None:
    """Judge labelled answers and print how well credit finds the relevant sources, beside leave-one-out and chance.

    Jaccard@K: K is the number of sources labelled relevant; ties for the last places count with their exact
    expectation, so the order of the sources decides nothing.

    A line is `{"dataset", "query_id", "query", "answer", "sources": [{"source_id", "title", "text"}], "relevant":
    [source_id]}`. It may record a matrix in `"key_points": [{"text", "importance", "support": {source_id: 0..1}}]`,
    which is scored too. A bad line is reported as file:line, the others are still done, and the exit code is 1.
    """
    settings = None if judge == RECORDED else settings_for(load_settings(), judge)
    if asyncio.run(evaluate_configured(files, settings, output, verbose=verbose)):
        raise typer.Exit(1)


async def evaluate_configured(
    files: Sequence[Path], settings: Settings | None, output: OutputFormat, *, verbose: bool
) -> int:
    """`evaluate_files` by the judge that the settings name; without settings by none."""
    if settings is None:
        return await evaluate_files(files, None, output, verbose=verbose)
    from worker import app  # noqa: PLC0415 - recorded matrices are scored without loading an adapter

    async with app.open_judge(settings, Telemetry(), app.unstored_accounts()) as judge:
        return await evaluate_files(files, judge, output, verbose=verbose)


async def evaluate_files(
    files: Sequence[Path], judge: Judge | None, output: OutputFormat, *, verbose: bool = False
) -> int:
    """Print the figures of what the files record and, with a judge, of what it says now; the number of problems."""
    lines = [line for path in files for line in read_lines(path)]
    labelled = [line for line in lines if isinstance(line, LabelledLine)]
    problems = [line for line in lines if isinstance(line, Problem)]
    evaluated = list(evaluate_recorded(labelled))
    if judge is not None:
        judged, failures = await evaluate_judge(judge, labelled)
        evaluated, problems = judged + evaluated, problems + failures
    if evaluated:
        print_results(evaluated, output, verbose=verbose)
    for problem in problems:
        Console(stderr=True).print(f"{problem.place}: {problem.text}", markup=False, highlight=False, soft_wrap=True)
    return len(problems)


def settings_for(settings: Settings, judge: str | None) -> Settings:
    """The settings with this judge, or unchanged.

    Raises:
        typer.BadParameter: no judge has this name.
    """
    if judge is None:
        return settings
    if judge not in list(JudgeName):
        raise typer.BadParameter(f"{judge!r} is none of {', '.join([*JudgeName, RECORDED])}", param_hint="--judge")
    return settings.model_copy(update={"judge": settings.judge.model_copy(update={"name": JudgeName(judge)})})


def evaluate_recorded(lines: Iterable[LabelledLine]) -> Iterator[Evaluated]:
    """Scores of the matrices that the files record."""
    for line in lines:
        answer = line.answer
        if answer.key_points:
            weights = [key_point.importance for key_point in answer.key_points]
            scores = score_matrix(answer.recorded_supports, weights, answer.relevant_positions, len(answer.sources))
            yield Evaluated(answer.dataset, RECORDED, answer.query_id, scores)


async def evaluate_judge(judge: Judge, lines: Sequence[LabelledLine]) -> tuple[list[Evaluated], list[Problem]]:
    """Scores of the matrices that the judge makes now, and a problem for each answer it could not judge."""
    evaluated: list[Evaluated] = []
    problems: list[Problem] = []
    terminal = Console(stderr=True)
    for line in track(lines, "judging", console=terminal, transient=True, disable=not terminal.is_terminal):
        try:
            evaluated.append(await evaluate_one(judge, line))
        except WorkerError as error:
            problems.append(Problem(line.place, str(error)))
    return evaluated, problems


async def evaluate_one(judge: Judge, line: LabelledLine) -> Evaluated:
    answer = line.answer
    started_s = time.perf_counter()
    judgement = await judge.judge(answer.as_served())
    duration_s = time.perf_counter() - started_s
    weights = [key_point.weight for key_point in judgement.key_points]
    scores = score_matrix(judgement.supports, weights, answer.relevant_positions, len(answer.sources))
    name = judge.profile.name
    return Evaluated(answer.dataset, name, answer.query_id, scores, duration_s, judgement.usage.cost_usd)


def print_results(evaluated: Sequence[Evaluated], output: OutputFormat, *, verbose: bool) -> None:
    match output:
        case OutputFormat.JSON:
            for line in json_lines(evaluated, verbose=verbose):
                sys.stdout.write(line + "\n")
        case OutputFormat.TABLE:
            for table in tables(evaluated, verbose=verbose):
                Console().print(table)
        case _:
            assert_never(output)
