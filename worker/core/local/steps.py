"""Work in steps: a generator that yields between them and returns its result, for whoever must do other things too."""

from collections.abc import Generator
from typing import TypeVar, cast

T = TypeVar("T")


def returned(steps: Generator[None, None, T]) -> T:
    """The result, when nothing needs to run between the steps."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return cast("T", stop.value)
