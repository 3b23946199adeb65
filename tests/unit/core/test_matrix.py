import pytest

from worker.core.matrix import SupportMatrix, cells_of, settled
from worker.core.model import KeyPoint, Quote, QuoteOrigin, Source, SourceId
from worker.core.verdict import CellProblem, Score, Scores

KEY_POINTS = (KeyPoint("The tidal barrage houses twelve bulb turbines."), KeyPoint("Salmon use a bypass channel."))
SOURCES = (
    Source(SourceId("a"), "Twelve bulb turbines turn inside the tidal barrage. It rains there."),
    Source(SourceId("b"), "Nothing of the kind is said here."),
)


def with_unevidenced(units_by_cell: dict[tuple[int, int], int]) -> Scores:
    accepted = {cell: Score(0) for cell in cells_of(2, 2) if cell not in units_by_cell}
    return Scores(accepted, dict.fromkeys(units_by_cell, CellProblem.QUOTE_NOT_FOUND), units_by_cell)


def test_a_support_stands_on_the_window_that_holds_half_of_the_key_points_content() -> None:
    matrix = settled(with_unevidenced({(0, 0): 7_000}), KEY_POINTS, SOURCES)
    assert matrix.supports[0, 0] == 7_000
    assert matrix.quotes[0, 0] == Quote(
        "Twelve bulb turbines turn inside the tidal barrage.", origin=QuoteOrigin.LOCATED
    )
    assert matrix.unevidenced == {}


def test_without_any_evidence_the_support_is_0_by_rule_and_the_judges_number_is_kept() -> None:
    matrix = settled(with_unevidenced({(0, 1): 10_000, (1, 0): 3_000}), KEY_POINTS, SOURCES)
    assert set(matrix.supports.values()) == {0}
    assert matrix.quotes == {}
    assert matrix.unevidenced == {(0, 1): 10_000, (1, 0): 3_000}


def test_a_judgement_has_the_matrix_in_the_events_order() -> None:
    accepted = {cell: Score(1_000 * index, "q" if index else None) for index, cell in enumerate(cells_of(2, 2))}
    judgement = settled(Scores(accepted), KEY_POINTS, SOURCES).judgement(grounding_threshold=3_000, shuffle_seed=5)
    assert judgement.supports == ((0, 1_000), (2_000, 3_000))
    assert judgement.shuffle_seed == 5


@pytest.mark.parametrize("cell", cells_of(2, 2))
def test_while_a_cell_has_no_number_there_is_no_matrix(cell: tuple[int, int]) -> None:
    accepted = {other: Score(0) for other in cells_of(2, 2) if other != cell}
    with pytest.raises(ValueError, match="every cell and no other"):
        settled(Scores(accepted, {cell: CellProblem.MISSING}), KEY_POINTS, SOURCES)


def test_no_matrix_can_be_made_with_a_cell_too_many_an_unquoted_support_or_no_integer() -> None:
    cells = dict.fromkeys(cells_of(2, 2), 0)
    with pytest.raises(ValueError, match="every cell and no other"):
        SupportMatrix(KEY_POINTS, 2, {**cells, (2, 0): 0}, {}, {})
    with pytest.raises(ValueError, match=r"cell \(1, 1\) has no evidence"):
        SupportMatrix(KEY_POINTS, 2, {**cells, (1, 1): 1}, {}, {})
    for units in (-1, 10_001, 0.5, True):
        with pytest.raises(ValueError, match=r"cell \(0, 1\) is no integer"):
            SupportMatrix(KEY_POINTS, 2, {**cells, (0, 1): units}, {(0, 1): Quote("q")}, {})  # type: ignore[dict-item]  # that is the test
