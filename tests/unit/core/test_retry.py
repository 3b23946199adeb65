from hypothesis import given
from hypothesis import strategies as st

from worker.core.retry import RetryPolicy

POLICY = RetryPolicy(attempts_max=5, backoff_base_s=0.5, backoff_max_s=30.0, outage_backoff_max_s=5.0)
jitters = st.floats(min_value=0, max_value=1, exclude_max=True)


@given(jitters)
def test_the_last_attempt_is_followed_by_no_pause_but_an_end(jitter: float) -> None:
    assert POLICY.pause_after_failure_s(4, jitter) is not None
    assert POLICY.pause_after_failure_s(5, jitter) is None


@given(st.integers(min_value=1, max_value=4), jitters)
def test_pauses_double_with_jitter_in_their_upper_half(attempt: int, jitter: float) -> None:
    pause_s = POLICY.pause_after_failure_s(attempt, jitter)
    ceiling_s = 0.5 * 2 ** (attempt - 1)
    assert pause_s is not None
    assert ceiling_s / 2 <= pause_s <= ceiling_s


@given(st.integers(min_value=1, max_value=10**6), jitters, st.floats(min_value=-1e9, max_value=1e9))
def test_no_outage_pause_passes_its_cap_whatever_the_other_side_asks(tries: int, jitter: float, asked_s: float) -> None:
    """zotero-mcp#549: a limiter computed a wait of 33 hours."""
    assert 0 < POLICY.pause_in_outage_s(tries, jitter, asked_s) <= POLICY.outage_backoff_max_s


def test_what_the_other_side_asked_for_is_a_floor() -> None:
    assert POLICY.pause_after_failure_s(1, 0.0, retry_after_s=7.0) == 7.0
