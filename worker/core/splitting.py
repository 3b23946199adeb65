"""Which cells one scoring call asks for: all of them, or as many as the model takes at once, sources never cut."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from worker.core.prompts import ScoringMode

Cell = tuple[int, int]
"""(key point index, source index), as in `Judgement.quotes`."""

REPLY_TOKENS = 64
ROW_TOKENS = 16
CELL_TOKENS = 32
"""Of a reply: the whole, one row, one cell with a quote of usual length. A reply that needs more is cut, and asked for
once more under a larger cap."""


@dataclass(frozen=True, slots=True)
class Column:
    """The cells asked of one source, and the input tokens it takes to show that source."""

    source: int
    cells: Sequence[Cell]
    input_tokens: int


def columns_of(cells: Iterable[Cell], positions: Sequence[int]) -> dict[int, list[Cell]]:
    """The cells by source, sources in the order of their positions; sources without a cell are left out."""
    columns: dict[int, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: (positions[cell[1]], cell[0])):
        columns.setdefault(cell[1], []).append(cell)
    return columns


def score_reply_tokens(rows: int, cells: int) -> int:
    """Room for a reply in which every cell has a quote."""
    return REPLY_TOKENS + ROW_TOKENS * rows + CELL_TOKENS * cells


def calls_of(
    columns: Sequence[Column], mode: ScoringMode, *, input_tokens_max: int, output_tokens_max: int
) -> Iterator[Sequence[Cell]]:
    """The cells of each call, every cell in exactly one.

    In `answer` mode neighbours share a call while their sources fit `input_tokens_max` together and a full reply fits
    `output_tokens_max`; a source that does not fit has a call of its own, for the caller to refuse.
    """
    match mode:
        case ScoringMode.PAIR:
            return ([cell] for column in columns for cell in column.cells)
        case ScoringMode.SOURCE:
            return (column.cells for column in columns)
        case ScoringMode.ANSWER:
            return _filled(columns, input_tokens_max, output_tokens_max)


def _filled(columns: Sequence[Column], input_tokens_max: int, output_tokens_max: int) -> Iterator[Sequence[Cell]]:
    cells: list[Cell] = []
    rows: set[int] = set()
    input_tokens = 0
    for column in columns:
        rows_with = rows.union(key_point for key_point, _ in column.cells)
        input_tokens += column.input_tokens
        reply_tokens = score_reply_tokens(len(rows_with), len(cells) + len(column.cells))
        if cells and (input_tokens > input_tokens_max or reply_tokens > output_tokens_max):
            yield cells
            cells, input_tokens = [], column.input_tokens
            rows_with = {key_point for key_point, _ in column.cells}
        cells.extend(column.cells)
        rows = rows_with
    if cells:
        yield cells
