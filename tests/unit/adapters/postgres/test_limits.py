import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.adapters.postgres.limits import RecentOutcomes, refusal
from worker.settings import DeadLetterSettings

LIMITS = DeadLetterSettings(consecutive_max=100, ratio_max=0.5, ratio_window=1_000)


@pytest.mark.parametrize(
    ("consecutive", "dead_letters", "outcomes", "refused"),
    [
        (0, 0, 0, False),
        (99, 99, 99, False),
        (100, 100, 100, True),
        (0, 90, 99, False),  # too few outcomes to speak of a share
        (0, 50, 100, True),  # 51 of 101
        (0, 49, 100, False),  # 50 of 101
        (0, 499, 999, False),  # 500 of 1,000
        (0, 500, 999, True),  # 501 of 1,000
    ],
)
def test_the_next_dead_letter_is_refused_past_the_limits(
    consecutive: int, dead_letters: int, outcomes: int, refused: bool
) -> None:
    assert (refusal(RecentOutcomes(consecutive, dead_letters, outcomes), LIMITS) is not None) == refused


@given(st.integers(1, 50), st.integers(10, 60), st.floats(0.01, 1.0))
def test_a_build_that_fails_everything_always_stops_by_the_consecutive_limit(
    consecutive_max: int, ratio_window: int, ratio_max: float
) -> None:
    limits = DeadLetterSettings(consecutive_max=consecutive_max, ratio_window=ratio_window, ratio_max=ratio_max)
    written = 0
    while refusal(RecentOutcomes(written, *(min(written, ratio_window - 1),) * 2), limits) is None:
        written += 1
    assert written <= consecutive_max
    assert written >= min(consecutive_max, ratio_window - 1)


def test_the_advice_says_what_to_do() -> None:
    assert "attribution-worker resume" in str(refusal(RecentOutcomes(100, 100, 100), LIMITS))
