"""`make bench`: every benchmark, each figure beside its baseline from the same run."""

import importlib
import pkgutil
import sys

from rich.console import Console
from rich.table import Table

import tests.benchmarks as package
from tests.benchmarks.figure import Figure

VERDICTS = {True: "[green]met[/]", False: "[red]missed[/]", None: "–"}


def benchmark_names() -> list[str]:
    """Modules named `bench_*` beside this one; each has `run() -> list[Figure]`."""
    return sorted(name for _, name, _ in pkgutil.iter_modules(package.__path__) if name.startswith("bench_"))


def table_of(name: str, figures: list[Figure]) -> Table:
    table = Table(title=name.removeprefix("bench_"), title_justify="left")
    for heading in ("figure", "measured", "baseline (same run)", "ratio", "goal", ""):
        table.add_column(heading, overflow="fold")
    for figure in figures:
        ratio = "–" if figure.ratio is None else f"{figure.ratio:.2f}"
        table.add_row(figure.name, figure.measured, figure.baseline, ratio, figure.goal, VERDICTS[figure.met])
    return table


def main(wanted: list[str]) -> int:
    """Run the named benchmarks, or all; exit 2 on an unknown name."""
    names = benchmark_names()
    chosen = [f"bench_{name}" for name in wanted] or names
    console = Console()
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        console.print(f"unknown: {', '.join(unknown)}; known: {', '.join(n.removeprefix('bench_') for n in names)}")
        return 2
    for name in chosen:
        module = importlib.import_module(f"tests.benchmarks.{name}")
        console.print(table_of(name, module.run()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
