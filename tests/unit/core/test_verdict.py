import json
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.model import KeyPoint
from worker.core.model_side import StatedCell, key_points_reply, scores_reply
from worker.core.prompts import Weighting
from worker.core.replies import Flaw
from worker.core.splitting import Cell
from worker.core.verdict import (
    KEY_POINT_CHARACTERS_MAX,
    CellProblem,
    Ignored,
    Score,
    Scores,
    ShownIds,
    parse_dropped,
    parse_key_points,
    parse_scores,
)

SHOWN = ShownIds(key_points={"k1": 0, "k2": 1}, sources={"s1": 1, "s2": 0})
"""s1 stands for the second source: ids follow the order shown, indices the event's."""

CELLS = [(row, column) for row in range(2) for column in range(2)]


def as_it_is(text: str) -> str:
    return text


def anything_is_quoted(_quote: str, _source: int) -> bool:
    return True


def scores(text: str | None, asked: Collection[Cell] = CELLS, **options: Any) -> Scores | Flaw:
    return parse_scores(text, asked, shown=SHOWN, is_quoted=anything_is_quoted, clean=as_it_is, **options)


def scores_of(*rows: object, asked: Collection[Cell] = CELLS) -> Scores:
    read = scores(json.dumps({"rows": rows}), asked)
    assert isinstance(read, Scores)
    return read


def row(key_point: object = "k1", *support: object, zero: object = ()) -> dict[str, object]:
    return {"k": key_point, "support": list(support), "zero": list(zero) if isinstance(zero, tuple) else zero}


def cell(source: object = "s1", v: object = 0.7, quote: object = "words") -> dict[str, object]:
    return {"s": source, "quote": quote, "v": v}


def test_ids_lead_to_the_cells_they_were_issued_for() -> None:
    read = scores_of(row("k1", cell("s1", 1), zero=("s2",)), row("k2", cell("s2", 0.3), zero=("s1",)))
    assert read.accepted == {
        (0, 1): Score(10_000, "words"),
        (0, 0): Score(0),
        (1, 0): Score(3_000, "words"),
        (1, 1): Score(0),
    }
    assert read.problems == {}


@pytest.mark.parametrize(
    ("number", "units"),
    [
        ("0", 0),
        ("-0.0", 0),
        ("1.0", 10_000),
        ("0.5", 5_000),
        ("7e-1", 7_000),
        ("0.00005", 0),
        ("0.00015", 2),
        ("0.99995", 10_000),
        ("1e-400", 0),
    ],
)
def test_a_number_is_rounded_once_half_to_even_to_units_of_a_ten_thousandth(number: str, units: int) -> None:
    text = f'{{"rows":[{{"k":"k1","support":[{{"s":"s1","quote":"q","v":{number}}}],"zero":[]}}]}}'
    read = scores(text, [(0, 1)])
    assert isinstance(read, Scores)
    assert read.accepted[0, 1].units == units


@pytest.mark.parametrize("number", ["1.0001", "-0.0001", "2", "1e999", "-1e999", "9" * 5_000, "1e9999999999999"])
def test_a_number_outside_0_to_1_is_a_problem(number: str) -> None:
    text = f'{{"rows":[{{"k":"k1","support":[{{"s":"s1","quote":"q","v":{number}}}],"zero":["s2"]}}]}}'
    read = scores(text, [(0, 1), (0, 0)])
    assert isinstance(read, Scores)
    assert read.problems == {(0, 1): CellProblem.OUT_OF_RANGE}
    assert read.accepted == {(0, 0): Score(0)}


@pytest.mark.parametrize("value", ["0.7", "1", "", True, False, None, [], [0.7], {"v": 0.7}])
def test_what_only_looks_like_a_number_is_a_problem(value: object) -> None:
    read = scores_of(row("k1", cell(v=value), zero=("s2",)), asked=[(0, 1), (0, 0)])
    assert read.problems == {(0, 1): CellProblem.NOT_A_NUMBER}


def test_a_cell_without_its_number_has_none() -> None:
    read = scores_of(row("k1", {"s": "s1", "quote": "words"}), asked=[(0, 1)])
    assert read.problems == {(0, 1): CellProblem.NOT_A_NUMBER}


def test_a_cell_that_is_not_there_is_missing_and_never_zero() -> None:
    read = scores_of(row("k1", cell("s1")))
    assert read.problems == dict.fromkeys([(0, 0), (1, 0), (1, 1)], CellProblem.MISSING)
    assert read.accepted.keys() == {(0, 1)}


@pytest.mark.parametrize(
    "rows",
    [
        [row("k1", cell("s1"), cell("s1"))],
        [row("k1", cell("s1"), zero=("s1",))],
        [row("k1", zero=("s1", "s1"))],
        [row("k1", cell("s1")), row("k1", cell("s1"))],
    ],
)
def test_a_cell_stated_twice_even_alike_is_a_problem(rows: list[object]) -> None:
    read = scores_of(*rows, asked=[(0, 1)])
    assert read.problems == {(0, 1): CellProblem.DUPLICATE}


def test_one_row_may_come_in_two_parts() -> None:
    read = scores_of(row("k1", cell("s1")), row("k1", zero=("s2",)), asked=[(0, 0), (0, 1)])
    assert read.problems == {}


@pytest.mark.parametrize("quote", ["", "  ", None, 7, ["words"]])
def test_a_positive_number_without_a_quote_is_kept_apart_and_no_support(quote: object) -> None:
    read = scores_of(row("k1", cell(quote=quote)), asked=[(0, 1)])
    assert read.problems == {(0, 1): CellProblem.QUOTE_MISSING}
    assert read.unevidenced == {(0, 1): 7_000}
    assert read.accepted == {}


def test_a_quote_is_looked_for_in_its_own_source_as_it_will_be_stored() -> None:
    looked_for = []

    def is_quoted(quote: str, source: int) -> bool:
        looked_for.append((quote, source))
        return False

    text = scores_reply([StatedCell("k1", "s1", 7_000, " WORDS "), StatedCell("k1", "s2", 0)])
    read = parse_scores(text, [(0, 0), (0, 1)], shown=SHOWN, is_quoted=is_quoted, clean=str.lower)
    assert isinstance(read, Scores)
    assert looked_for == [("words", 1)]
    assert read.problems == {(0, 1): CellProblem.QUOTE_NOT_FOUND}
    assert read.unevidenced == {(0, 1): 7_000}


def test_a_zero_needs_no_quote_wherever_it_is_stated() -> None:
    read = scores_of(row("k1", cell("s1", 0, ""), zero=("s2",)), asked=[(0, 0), (0, 1)])
    assert read.accepted == {(0, 0): Score(0), (0, 1): Score(0)}


def test_what_nobody_asked_for_is_counted_and_changes_nothing() -> None:
    asked = [(0, 1)]
    plain = scores_of(row("k1", cell("s1")), asked=asked)
    crowded = scores_of(
        row("k1", cell("s1"), cell("s2", 1), cell("s9", 1), zero=("doc-1", 7, None)),
        row("k2", cell("s1", 1)),
        row("k7", cell("s1", 1)),
        row(None, cell("s1", 1)),
        row("k1", "s1", [cell("s1")], cell(None)),
        row("k1", zero="s1"),
        "k1",
        None,
        asked=asked,
    )
    assert crowded.accepted == plain.accepted
    assert crowded.problems == plain.problems == {}
    assert crowded.ignored == {Ignored.NOT_ASKED: 2, Ignored.UNKNOWN_ID: 3, Ignored.UNREADABLE: 9}


@pytest.mark.parametrize("source", ["S1", " s1", "s01", "s1 ", "ｓ1", "1", "s1\u200b"])
def test_an_id_is_accepted_exactly_as_it_was_issued_or_not_at_all(source: str) -> None:
    read = scores_of(row("k1", cell(source)), asked=[(0, 1)])
    assert read.problems == {(0, 1): CellProblem.MISSING}
    assert read.ignored == {Ignored.UNKNOWN_ID: 1}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["k1", "k2", "s1", "s2", "k", "v", ""]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["rows", "k", "s", "v", "quote", "support", "zero", "x"]), inner, max_size=5)
    ),
    max_leaves=20,
)
PERFECT = scores_reply(
    StatedCell(key, source, units, "words") for key in ("k1", "k2") for source, units in (("s1", 7_000), ("s2", 0))
)


@st.composite
def damaged_replies(draw: st.DrawFn) -> str:
    """A perfect reply with a piece cut out, and another put in."""
    start, end = sorted(draw(st.tuples(*[st.integers(0, len(PERFECT))] * 2)))
    piece = draw(
        st.sampled_from(["", '"', "{", "}", "]", ",", "1e9", "NaN", '"s2"', "\\ud800", "\x00", "```", PERFECT])
    )
    return PERFECT[:start] + piece + PERFECT[end:]


@given(
    st.text() | json_values.map(json.dumps) | json_values.map(lambda v: json.dumps({"rows": v})) | damaged_replies(),
    st.sets(st.sampled_from(CELLS)),
    st.booleans(),
)
def test_whatever_is_replied_only_asked_cells_are_accepted_and_each_is_accounted_for(
    text: str, asked: set[Cell], is_quoted: bool
) -> None:
    read = parse_scores(text, asked, shown=SHOWN, is_quoted=lambda *_: is_quoted, clean=as_it_is)
    if isinstance(read, Flaw):
        return
    assert read.accepted.keys() | read.problems.keys() == asked
    assert not read.accepted.keys() & read.problems.keys()
    assert read.unevidenced.keys() <= read.problems.keys()
    for score in read.accepted.values():
        assert type(score.units) is int
        assert 0 <= score.units <= 10_000
        assert bool(score.units) == bool(score.quote)


@given(st.text() | json_values.map(json.dumps), st.sampled_from(Weighting))
def test_no_reply_to_decompose_or_refine_raises(text: str, weighting: Weighting) -> None:
    assert isinstance(parse_key_points(text, weighting, key_points_max=3, clean=as_it_is), (tuple, Flaw))
    assert isinstance(parse_dropped(text, {"k1": 0}), (frozenset, Flaw))


@given(
    st.lists(
        st.builds(KeyPoint, st.from_regex(r"[a-z]{1,8}( [a-z]{1,8}){0,3}", fullmatch=True), st.integers(1, 3)),
        max_size=8,
        unique_by=lambda key_point: key_point.text,
    )
)
def test_key_points_come_back_as_they_were_written(key_points: list[KeyPoint]) -> None:
    text = key_points_reply(key_points, Weighting.IMPORTANCE)
    assert parse_key_points(text, Weighting.IMPORTANCE, key_points_max=8, clean=as_it_is) == tuple(key_points)


def key_points(items: object, weighting: Weighting = Weighting.UNIFORM) -> tuple[KeyPoint, ...] | Flaw:
    return parse_key_points(json.dumps({"key_points": items}), weighting, key_points_max=3, clean=as_it_is)


def test_a_key_point_is_one_line_and_counts_once() -> None:
    assert key_points(["Tea  is\na drink. ", "TEA is a drink.", "Tea is hot."]) == (
        KeyPoint("Tea is a drink."),
        KeyPoint("Tea is hot."),
    )


@pytest.mark.parametrize("item", ["", " \n", 7, None, ["Tea."], {"text": "Tea."}, "x" * (KEY_POINT_CHARACTERS_MAX + 1)])
def test_one_bad_key_point_spoils_the_reply_rather_than_going_missing(item: object) -> None:
    assert key_points(["Tea is hot.", item]) is Flaw.NOT_THE_SCHEMA


@pytest.mark.parametrize("importance", [0, 4, -1, 2.0, 2.5, "2", True, None, [2]])
def test_an_importance_other_than_1_2_or_3_spoils_the_reply(importance: object) -> None:
    items = [{"text": "Tea is hot.", "importance": importance}]
    assert key_points(items, Weighting.IMPORTANCE) is Flaw.NOT_THE_SCHEMA


def test_more_key_points_than_allowed_are_refused_and_none_is_left_out() -> None:
    assert key_points(["a", "b", "c", "d"]) is Flaw.TOO_MANY_KEY_POINTS


def test_only_ids_that_were_shown_can_be_dropped() -> None:
    shown = {"k1": 0, "k2": 1}
    assert parse_dropped('{"drop":["k2","k2"]}', shown) == frozenset({1})
    assert parse_dropped('{"drop":[]}', shown) == frozenset()
    assert parse_dropped('{"drop":["k3"]}', shown) is Flaw.UNKNOWN_ID
    assert parse_dropped('{"drop":[1]}', shown) is Flaw.NOT_THE_SCHEMA
