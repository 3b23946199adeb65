"""The model's side of a conversation: what a request asks, and what a model that judges so would reply.

For whoever stands in for a model: the emulator, the tests, and the token figures.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from worker.core.fencing import encoded
from worker.core.model import SUPPORT_SCALE, KeyPoint
from worker.core.prompts import Weighting

_OPENING = re.compile(r"<data (\d+)>")
_PAIRS = "Score only these pairs: "


@dataclass(frozen=True, slots=True)
class ShownSource:
    """A source, under the id that the request gave it."""

    source_id: str
    text: str
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request shows and wants; what its stage does not show is empty.

    `key_points` are texts by id; `pairs` the (key point id, source id) to be scored.
    """

    query: str
    answer: str
    key_points: Mapping[str, str]
    sources: tuple[ShownSource, ...]
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class StatedCell:
    """What the model says of one pair; the quote of a support of 0 is not sent."""

    key_point_id: str
    source_id: str
    units: int
    quote: str = ""


def read_request(message: str) -> Asked:
    """What a request's `context` and `question`, joined by any line breaks, ask."""
    query = answer = ""
    key_points: dict[str, str] = {}
    sources = []
    for line in _fenced_lines(message):
        members = json.loads(line)
        if "query" in members:
            query, answer = members["query"], members.get("answer", "")
        elif "id" in members:
            sources.append(ShownSource(members["id"], members["text"], members.get("title")))
        else:
            key_points |= members
    pairs = [(key_point_id, source.source_id) for key_point_id in key_points for source in sources]
    for line in message.split("\n"):
        if line.startswith(_PAIRS):
            only = json.loads(line.removeprefix(_PAIRS))
            pairs = [(key_point_id, source_id) for key_point_id, ids in only.items() for source_id in ids]
    return Asked(query, answer, key_points, tuple(sources), tuple(pairs))


def key_points_reply(key_points: Iterable[KeyPoint], weighting: Weighting = Weighting.UNIFORM) -> str:
    """A reply to a decompose request."""
    match weighting:
        case Weighting.UNIFORM:
            return encoded({"key_points": [key_point.text for key_point in key_points]})
        case Weighting.IMPORTANCE:
            items = [{"text": key_point.text, "importance": key_point.weight} for key_point in key_points]
            return encoded({"key_points": items})


def dropped_reply(key_point_ids: Iterable[str]) -> str:
    """A reply to a refine request."""
    return encoded({"drop": list(key_point_ids)})


def scores_reply(cells: Iterable[StatedCell]) -> str:
    """A reply to a score request: a row per key point, in the order in which the cells first name it."""
    rows: dict[str, list[StatedCell]] = {}
    for cell in cells:
        rows.setdefault(cell.key_point_id, []).append(cell)
    return encoded({"rows": [_row(key_point_id, row) for key_point_id, row in rows.items()]})


def _row(key_point_id: str, cells: Iterable[StatedCell]) -> dict[str, object]:
    support = [{"s": c.source_id, "quote": c.quote, "v": _number(c.units)} for c in cells if c.units]
    return {"k": key_point_id, "support": support, "zero": [c.source_id for c in cells if not c.units]}


def _number(units: int) -> float:
    """As models write it: 1, not 1.0."""
    return units // SUPPORT_SCALE if units % SUPPORT_SCALE == 0 else units / SUPPORT_SCALE


def _fenced_lines(message: str) -> Iterator[str]:
    """The lines inside the blocks of the boundary that the first line opens."""
    lines = message.split("\n")
    opening = lines[0]
    boundary = _OPENING.fullmatch(opening)
    if boundary is None:
        raise ValueError("the message does not start with a block of data")
    closing = f"</data {boundary[1]}>"
    is_inside = False
    for line in lines:
        if line in (opening, closing):
            is_inside = line == opening
        elif is_inside:
            yield line
