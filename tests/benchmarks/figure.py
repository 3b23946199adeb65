"""One measured figure beside its baseline from the same run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """`ratio` is measured / baseline; `goal` says in words what was aimed for, `met` whether it was reached."""

    name: str
    measured: str
    baseline: str
    ratio: float | None
    goal: str
    met: bool | None
