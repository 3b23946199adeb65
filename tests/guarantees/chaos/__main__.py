"""`make chaos`: campaigns of real worker processes under everything that breaks, and a table of what held.

python -m tests.guarantees.chaos                              every scenario, 5,000 answers each
python -m tests.guarantees.chaos kills --answers 500 --seed 7 one of them again, from its seed
"""

import argparse
import asyncio
import logging
import secrets
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.guarantees.chaos.campaign import Campaign, Report
from tests.guarantees.chaos.disturbances import SCENARIOS, Scenario
from tests.guarantees.guarantees import GUARANTEES

VIOLATIONS_SHOWN = 10

console = Console(highlight=False, soft_wrap=True)


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.guarantees.chaos", description="Break everything, and ask whether the guarantees held."
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; none: all")
    parser.add_argument("--answers", type=int, default=5_000, help="records of each campaign (5,000)")
    parser.add_argument("--answers-per-s", type=float, default=40.0, help="how fast they stream in (40)")
    parser.add_argument("--seed", type=int, help="of an earlier campaign, to have the same records and strikes again")
    chosen = parser.parse_args(given)
    if unknown := sorted(set(chosen.scenarios) - SCENARIOS.keys()):
        parser.error(f"no such scenario: {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    return chosen


def run(scenario: Scenario, seed: int, answers: int, answers_per_s: float, logs: Path) -> Report:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(scenario.name, total=answers)

        def show(doing: str, committed: int, of: int) -> None:
            progress.update(task, description=f"{scenario.name}: {doing}", completed=committed, total=of)

        return asyncio.run(Campaign(scenario, seed, answers, answers_per_s, logs, show).run())


def show(report: Report) -> None:
    table = Table(title=f"{report.scenario}, seed {report.seed}", title_justify="left")
    for heading in ("guarantee", "", "violations"):
        table.add_column(heading, overflow="fold")
    for name in (type(guarantee).__name__ for guarantee in GUARANTEES):
        violations = report.broken.get(name, ())
        shown = "\n".join((*violations[:VIOLATIONS_SHOWN], *(["…"] if len(violations) > VIOLATIONS_SHOWN else [])))
        table.add_row(name, "[red]broken[/]" if violations else "[green]held[/]", shown)
    console.print(table)
    facts = {"outcomes": report.outcomes, "strikes": report.strikes, "LLM calls": report.calls, "ends": report.ends}
    for name, counted in facts.items():
        told = ", ".join(f"{what} {count:,}" for what, count in sorted(counted.items()))
        console.print(f"  {name}: {told or 'none'}")
    console.print(f"  looks at commits: {report.looks:,}\n")


def main(given: list[str]) -> int:
    """0 where every guarantee held, 1 where one was broken."""
    chosen = arguments(given)
    # While a broker is away on purpose, its client has nothing of interest to say.
    logging.disable(logging.CRITICAL)
    seed = secrets.randbelow(1_000_000) if chosen.seed is None else chosen.seed
    broken = False
    for name in chosen.scenarios or SCENARIOS:
        again = f"python -m tests.guarantees.chaos {name} --answers {chosen.answers} --seed {seed}"
        console.print(f"[bold]{name}[/]: {chosen.answers:,} answers; again: {again}")
        logs = Path(tempfile.mkdtemp(prefix=f"chaos-{name}-"))
        console.print(f"  logs of its workers: {logs}")
        report = run(SCENARIOS[name], seed, chosen.answers, chosen.answers_per_s, logs)
        show(report)
        broken |= bool(report.broken)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
