"""The support matrix: every cell settled with its evidence, or no judgement at all."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from worker.core.evidence import located_quote
from worker.core.local.support import index_of
from worker.core.model import SUPPORT_SCALE, Judgement, KeyPoint, Quote, Source
from worker.core.splitting import Cell
from worker.core.verdict import Scores


@dataclass(frozen=True, slots=True)
class SupportMatrix:
    """A support for every cell, in units of 10⁻⁴, and a quote for every positive one: it cannot be made otherwise.

    `unevidenced` holds the judge's own number of each cell that is 0 because nothing in its source shows it.

    Raises:
        ValueError: a cell without support, a support out of range, or a positive one without quote.
    """

    key_points: tuple[KeyPoint, ...]
    source_count: int
    supports: Mapping[Cell, int]
    quotes: Mapping[Cell, Quote]
    unevidenced: Mapping[Cell, int]

    def __post_init__(self) -> None:
        if self.supports.keys() != set(cells_of(len(self.key_points), self.source_count)):
            raise ValueError("a support matrix has a support for every cell and no other")
        for cell, units in self.supports.items():
            if type(units) is not int or not 0 <= units <= SUPPORT_SCALE:
                raise ValueError(f"the support of cell {cell} is no integer within 0..{SUPPORT_SCALE}")
            if units and cell not in self.quotes:
                raise ValueError(f"the support of cell {cell} has no evidence")

    def judgement(self, *, grounding_threshold: int, shuffle_seed: int) -> Judgement:
        sources = range(self.source_count)
        return Judgement(
            key_points=self.key_points,
            supports=tuple(
                tuple(self.supports[key_point, source] for source in sources)
                for key_point in range(len(self.key_points))
            ),
            quotes=self.quotes,
            grounding_threshold=grounding_threshold,
            unevidenced=self.unevidenced,
            shuffle_seed=shuffle_seed,
        )


def cells_of(key_point_count: int, source_count: int) -> tuple[Cell, ...]:
    """Every cell of a matrix, row by row."""
    return tuple((key_point, source) for key_point in range(key_point_count) for source in range(source_count))


def settled(scores: Scores, key_points: Sequence[KeyPoint], sources: Sequence[Source]) -> SupportMatrix:
    """The matrix, once every cell has a number from the judge.

    A number without evidence stands if the local judge locates a window of the source that holds at least half of the
    key point's content terms, which then is the evidence; else the support is 0 by rule.

    Raises:
        ValueError: a cell has no number.
    """
    supports = {cell: score.units for cell, score in scores.accepted.items()}
    quotes = {cell: Quote(score.quote) for cell, score in scores.accepted.items() if score.quote is not None}
    located = located_quotes(scores.unevidenced, key_points, sources)
    for cell, units in scores.unevidenced.items():
        supports[cell] = units if cell in located else 0
    return SupportMatrix(
        key_points=tuple(key_points),
        source_count=len(sources),
        supports=supports,
        quotes=quotes | located,
        unevidenced={cell: units for cell, units in scores.unevidenced.items() if cell not in located},
    )


def located_quotes(
    cells: Collection[Cell], key_points: Sequence[KeyPoint], sources: Sequence[Source]
) -> dict[Cell, Quote]:
    """Where the local judge finds each cell's key point in its source; nothing for those it does not find."""
    indexes = {source: index_of(sources[source]) for _, source in cells}
    located = {cell: located_quote(key_points[cell[0]].text, indexes[cell[1]]) for cell in cells}
    return {cell: quote for cell, quote in located.items() if quote is not None}
