"""Faults come when they are told to, and the same seed brings the same."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.fencing import Fence
from worker.core.llm import Stage
from worker.core.prompts import Weighting
from worker.core.replies import Flaw
from worker.core.verdict import CellProblem, Ignored, Scores, ShownIds, parse_key_points, parse_scores
from worker.embedded.llm_emulator import spoiling
from worker.embedded.llm_emulator.chances import Chances, Fixed, Lognormal, spread_of
from worker.embedded.llm_emulator.effects import EFFECTS
from worker.embedded.llm_emulator.fault_plan import FaultLine, FaultPlan, fault_plan_of
from worker.embedded.llm_emulator.faults import Fault
from worker.embedded.llm_emulator.schemas import schema_problem

SHOWN = ShownIds(key_points={"k1": 0, "k2": 1}, sources={"s1": 0, "s2": 1})
CELLS = [(0, 0), (0, 1), (1, 0), (1, 1)]
GOOD = json.dumps(
    {
        "rows": [
            {"k": "k1", "support": [{"s": "s1", "quote": "tea", "v": 0.7}], "zero": ["s2"]},
            {"k": "k2", "support": [{"s": "s2", "quote": "tea", "v": 1}], "zero": ["s1"]},
        ]
    },
    separators=(",", ":"),
)


def scores(spoil: spoiling.Spoil) -> Scores | Flaw:
    return parse_scores(
        spoil(GOOD),
        CELLS,
        shown=SHOWN,
        is_quoted=lambda quote, _: quote == "tea",
        clean=lambda text: Fence("0").clean(text)[0],
    )


def problems(spoil: spoiling.Spoil) -> Counter[CellProblem]:
    read = scores(spoil)
    assert isinstance(read, Scores)
    return Counter(read.problems.values())


def test_every_fault_does_something() -> None:
    assert set(EFFECTS) == set(Fault)


def test_the_reply_that_is_spoiled_is_good() -> None:
    assert problems(lambda text: text) == {}


@pytest.mark.parametrize(
    ("spoil", "flaw"),
    [
        (spoiling.amid_prose, Flaw.NOT_JSON),
        (spoiling.two_objects, Flaw.NOT_JSON),
        (spoiling.cut_short, Flaw.NOT_JSON),
        (spoiling.empty, Flaw.EMPTY),
        (spoiling.not_json, Flaw.NOT_JSON),
        (spoiling.wrong_schema, Flaw.NOT_THE_SCHEMA),
        (spoiling.array_at_the_top, Flaw.NOT_THE_SCHEMA),
        (spoiling.nul, Flaw.NOT_JSON),
        (spoiling.lone_surrogate, Flaw.NOT_JSON),
        (spoiling.huge, Flaw.TOO_LONG),
        (spoiling.deep, Flaw.NOT_JSON),
        (spoiling.duplicate_names, Flaw.NOT_JSON),
        (spoiling.nan_scores, Flaw.NOT_JSON),
    ],
)
def test_a_spoiled_reply_is_spoiled_as_its_name_says(spoil: spoiling.Spoil, flaw: Flaw) -> None:
    assert scores(spoil) is flaw


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (spoiling.fenced, {}),
        (spoiling.extra_cells, {}),
        (spoiling.missing_cells, {CellProblem.MISSING: 3}),
        (spoiling.wrong_ids, {CellProblem.MISSING: 4}),
        (spoiling.duplicate_cells, {CellProblem.DUPLICATE: 2}),
        (spoiling.out_of_range, {CellProblem.OUT_OF_RANGE: 4}),
        (spoiling.negative_scores, {CellProblem.OUT_OF_RANGE: 4}),
        (spoiling.infinite_scores, {CellProblem.OUT_OF_RANGE: 4}),
        (spoiling.scores_in_words, {CellProblem.NOT_A_NUMBER: 4}),
        (spoiling.no_scores, {CellProblem.NOT_A_NUMBER: 4}),
        (spoiling.invented_quotes, {CellProblem.QUOTE_NOT_FOUND: 4}),
        (spoiling.no_quotes, {CellProblem.QUOTE_MISSING: 4}),
    ],
)
def test_spoiled_cells_are_spoiled_as_their_name_says(spoil: spoiling.Spoil, expected: dict[CellProblem, int]) -> None:
    assert problems(spoil) == expected


def test_cells_that_nobody_asked_for_are_there() -> None:
    read = scores(spoiling.extra_cells)
    assert isinstance(read, Scores)
    assert read.ignored == {Ignored.UNKNOWN_ID: 2}


@pytest.mark.parametrize("spoil", [spoiling.nul_escaped, spoiling.lone_surrogate_escaped])
def test_escaped_monsters_are_valid_json(spoil: spoiling.Spoil) -> None:
    reply = spoil('{"key_points":["Tea is a drink."]}')
    (text,) = json.loads(reply)["key_points"]
    assert text[0] in {"\0", "\ud800"}
    read = parse_key_points(reply, Weighting.UNIFORM, key_points_max=9, clean=lambda text: Fence("0").clean(text)[0])
    assert not isinstance(read, Flaw)
    assert read[0].text == "\ufffdTea is a drink."


def test_a_plan_is_read_from_words() -> None:
    plan = fault_plan_of("rate_limited=0.25, 3:reset_after_work,slow_body=0.5")
    assert plan == FaultPlan({Fault.RATE_LIMITED: 0.25, Fault.SLOW_BODY: 0.5}, {3: Fault.RESET_AFTER_WORK})
    assert fault_plan_of("") == FaultPlan()


@pytest.mark.parametrize(
    "text", ["rate_limited", "nonsense=0.1", "x:rate_limited", "rate_limited=2", "fenced=0.6,nul=0.6", "nul=nan"]
)
def test_a_plan_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        fault_plan_of(text)


def test_the_number_of_a_request_comes_before_chance() -> None:
    plan = FaultPlan({Fault.NUL: 1.0}, {3: Fault.FENCED})
    assert [plan.of(number, 0.5) for number in (2, 3)] == [Fault.NUL, Fault.FENCED]


def test_faults_strike_as_often_as_they_should() -> None:
    plan = FaultPlan({Fault.NUL: 0.1, Fault.FENCED: 0.2})
    drawn = Counter(plan.of(n, Chances.of(1, str(n).encode(), 0).fault) for n in range(10_000))
    assert drawn[Fault.NUL] == pytest.approx(1_000, rel=0.1)
    assert drawn[Fault.FENCED] == pytest.approx(2_000, rel=0.1)


def test_a_stage_has_its_own_line_before_the_common_one() -> None:
    line = FaultLine()
    line.put([Fault.NUL, None], None)
    line.put([Fault.FENCED], Stage.SCORE)
    taken = [line.take(stage) for stage in (Stage.SCORE, Stage.SCORE, None, None)]
    assert taken == [(True, Fault.FENCED), (True, Fault.NUL), (True, None), (False, None)]


@given(st.integers(-(2**63), 2**63 - 1), st.binary(), st.integers(0, 100))
def test_chance_repeats_and_never_reaches_its_ends(seed: int, content: bytes, nth: int) -> None:
    chances = Chances.of(seed, content, nth)
    assert chances == Chances.of(seed, content, nth)
    assert chances != Chances.of(seed, content, nth + 1)
    assert all(0 < chance < 1 for chance in (chances.fault, chances.latency, chances.reasoning))


def test_spreads_are_read_from_words() -> None:
    assert spread_of("2") == Fixed(2)
    assert spread_of("lognormal:2,0.5") == Lognormal(2, 0.5)
    assert spread_of("lognormal:2,0.5").at(0.5) == pytest.approx(2)
    for text in ("", "x", "normal:1,2", "lognormal:1", "-1", "nan", "1,2"):
        with pytest.raises(ValueError, match=r"."):
            spread_of(text)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {"type": "object", "properties": {}, "required": []},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": [], "additionalProperties": False},
        {"type": "object", "required": [], "additionalProperties": False},
        {"type": "array"},
        {"type": "number", "minimum": 0},
    ],
)
def test_schemas_that_no_provider_takes_are_found(schema: object) -> None:
    assert schema_problem(schema) is not None
