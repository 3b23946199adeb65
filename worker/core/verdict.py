"""What of a reply is believed: ids are ours, numbers are numbers within 0..1, quotes are in their sources.

Whatever is not exactly right is a problem of the cell it concerns, to be asked again; it is never a number, and never
touches another cell.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from worker.core.model import KeyPoint
from worker.core.prompts import Weighting
from worker.core.replies import Flaw, NumberText, list_in_reply
from worker.core.splitting import Cell
from worker.core.supports import support_units

KEY_POINT_CHARACTERS_MAX = 2_000
"""A longer one is no atomic fact."""

Clean = Callable[[str], str]
"""Makes a model's text fit to be stored, and shown to a model again."""


class CellProblem(StrEnum):
    """Why a cell that was asked for has no support yet."""

    MISSING = "missing"
    DUPLICATE = "duplicate"
    NOT_A_NUMBER = "not_a_number"
    OUT_OF_RANGE = "out_of_range"
    QUOTE_MISSING = "quote_missing"
    QUOTE_NOT_FOUND = "quote_not_found"


class Ignored(StrEnum):
    """What of a reply was passed over; it is counted, and changes no cell that was asked for."""

    UNKNOWN_ID = "unknown_id"
    NOT_ASKED = "not_asked"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Score:
    """The support of one cell in units of 10⁻⁴, with the model's quote if it is positive."""

    units: int
    quote: str | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """What replies say about the cells that were asked for: each is accepted or has a problem, never both.

    `unevidenced` holds the model's own number, in units of 10⁻⁴, for each cell whose only problem is its quote.
    """

    accepted: Mapping[Cell, Score]
    problems: Mapping[Cell, CellProblem] = field(default_factory=dict)
    unevidenced: Mapping[Cell, int] = field(default_factory=dict)
    ignored: Mapping[Ignored, int] = field(default_factory=dict)


def joined(parts: Sequence[Scores]) -> Scores:
    """What replies that were asked for different cells say together."""
    return Scores(
        accepted={cell: score for part in parts for cell, score in part.accepted.items()},
        problems={cell: problem for part in parts for cell, problem in part.problems.items()},
        unevidenced={cell: units for part in parts for cell, units in part.unevidenced.items()},
        ignored=sum((Counter(part.ignored) for part in parts), Counter[Ignored]()),
    )


def all_missing(cells: Collection[Cell]) -> Scores:
    """What a reply says that cannot be read."""
    return Scores({}, dict.fromkeys(cells, CellProblem.MISSING))


@dataclass(frozen=True, slots=True)
class ShownIds:
    """The ids under which a request showed key points and sources, each with its index."""

    key_points: Mapping[str, int]
    sources: Mapping[str, int]


def parse_key_points(
    text: str | None, weighting: Weighting, *, key_points_max: int, clean: Clean
) -> tuple[KeyPoint, ...] | Flaw:
    """The key points of a decompose reply, each text once; none of them when one is not as it must be."""
    items = list_in_reply(text, "key_points")
    if isinstance(items, Flaw):
        return items
    key_points: dict[str, KeyPoint] = {}
    for item in items:
        key_point = _key_point_of(item, weighting, clean)
        if key_point is None:
            return Flaw.NOT_THE_SCHEMA
        # The same words twice are one fact; counted twice it would weigh double.
        key_points.setdefault(key_point.text.casefold(), key_point)
    return tuple(key_points.values()) if len(key_points) <= key_points_max else Flaw.TOO_MANY_KEY_POINTS


def parse_dropped(text: str | None, key_points: Mapping[str, int]) -> frozenset[int] | Flaw:
    """The indices of the key points that a refine reply drops, from the ids they were shown under."""
    items = list_in_reply(text, "drop")
    if isinstance(items, Flaw):
        return items
    if not all(type(item) is str for item in items):
        return Flaw.NOT_THE_SCHEMA
    if not all(item in key_points for item in items):
        return Flaw.UNKNOWN_ID
    return frozenset(key_points[item] for item in items)


def parse_scores(
    text: str | None,
    asked: Collection[Cell],
    *,
    shown: ShownIds,
    is_quoted: Callable[[str, int], bool],
    clean: Clean,
) -> Scores | Flaw:
    """What a score reply says about the cells it was asked for, and about no other.

    `is_quoted` tells whether a quote is in the source of an index.
    """
    rows = list_in_reply(text, "rows")
    if isinstance(rows, Flaw):
        return rows
    ignored: Counter[Ignored] = Counter()
    statements: dict[Cell, list[_Statement]] = {cell: [] for cell in asked}
    for key_point_id, source_id, statement in _statements(rows, ignored):
        if key_point_id not in shown.key_points or source_id not in shown.sources:
            ignored[Ignored.UNKNOWN_ID] += 1
            continue
        cell = shown.key_points[key_point_id], shown.sources[source_id]
        if cell in statements:
            statements[cell].append(statement)
        else:
            ignored[Ignored.NOT_ASKED] += 1
    return _scores_of(statements, ignored, is_quoted, clean)


@dataclass(frozen=True, slots=True)
class _Statement:
    """What one place of a reply says about one cell."""

    number: object
    quote: str = ""


_IMPORTANCES = {"1": 1, "2": 2, "3": 3}
_ZERO = _Statement(NumberText("0"))


def _key_point_of(item: object, weighting: Weighting, clean: Clean) -> KeyPoint | None:
    match weighting:
        case Weighting.UNIFORM:
            text, weight = item, 1
        case Weighting.IMPORTANCE:
            members = item if isinstance(item, dict) else {}
            text, weight = members.get("text"), _importance_of(members.get("importance"))
    if type(text) is not str or not weight:
        return None
    # Inner line breaks would tear a key point apart wherever one line shows it.
    cleaned = " ".join(clean(text).split())
    return KeyPoint(cleaned, weight) if 0 < len(cleaned) <= KEY_POINT_CHARACTERS_MAX else None


def _importance_of(importance: object) -> int:
    """1, 2 or 3; 0 for anything else."""
    return _IMPORTANCES.get(importance, 0) if type(importance) is NumberText else 0


def _statements(rows: Sequence[Any], ignored: Counter[Ignored]) -> Iterator[tuple[str, str, _Statement]]:
    """(key point id, source id, statement) of everything readable; what is not is counted."""
    for row in rows:
        members = row if isinstance(row, dict) else {}
        key_point_id, support, zero = members.get("k"), members.get("support"), members.get("zero")
        if type(key_point_id) is not str or not isinstance(support, list) or not isinstance(zero, list):
            ignored[Ignored.UNREADABLE] += 1
            continue
        for cell in support:
            source_id = cell.get("s") if isinstance(cell, dict) else None
            if type(source_id) is not str:
                ignored[Ignored.UNREADABLE] += 1
                continue
            quote = cell.get("quote")
            yield key_point_id, source_id, _Statement(cell.get("v"), quote if type(quote) is str else "")
        for source_id in zero:
            if type(source_id) is str:
                yield key_point_id, source_id, _ZERO
            else:
                ignored[Ignored.UNREADABLE] += 1


def _scores_of(
    statements: Mapping[Cell, Sequence[_Statement]],
    ignored: Mapping[Ignored, int],
    is_quoted: Callable[[str, int], bool],
    clean: Clean,
) -> Scores:
    accepted: dict[Cell, Score] = {}
    problems: dict[Cell, CellProblem] = {}
    unevidenced: dict[Cell, int] = {}
    for cell, said in statements.items():
        score = _score_of(said)
        if isinstance(score, CellProblem):
            problems[cell] = score
            continue
        quote = clean(score.quote or "").strip()
        if score.units and not (quote and is_quoted(quote, cell[1])):
            problems[cell] = CellProblem.QUOTE_NOT_FOUND if quote else CellProblem.QUOTE_MISSING
            unevidenced[cell] = score.units
            continue
        accepted[cell] = Score(score.units, quote if score.units else None)
    return Scores(accepted, problems, unevidenced, ignored)


def _score_of(said: Sequence[_Statement]) -> Score | CellProblem:
    """The number of a cell; stated twice, even alike, it is not one number."""
    if not said:
        return CellProblem.MISSING
    if len(said) > 1:
        return CellProblem.DUPLICATE
    statement = said[0]
    if type(statement.number) is not NumberText:
        return CellProblem.NOT_A_NUMBER
    try:
        return Score(support_units(str(statement.number)), statement.quote)
    except ValueError:
        return CellProblem.OUT_OF_RANGE
