from hypothesis import given
from hypothesis import strategies as st

from worker.core.buckets import SECOND_NS
from worker.core.throttle import Throttle, ThrottlePolicy

POLICY = ThrottlePolicy(
    slowdown_permille=500,
    floor_permille=50,
    recovery_ns=100 * SECOND_NS,
    pause_ns=SECOND_NS,
    pause_ns_max=60 * SECOND_NS,
)


def throttle() -> Throttle:
    return Throttle(POLICY, now_ns=0)


def refuse(tested: Throttle, at_s: float, retry_after_s: float | None = None, jitter: float = 0.0) -> None:
    """A call granted and refused at once."""
    now_ns = int(at_s * SECOND_NS)
    retry_after_ns = None if retry_after_s is None else int(retry_after_s * SECOND_NS)
    tested.refused(granted_ns=now_ns, retry_after_ns=retry_after_ns, jitter=jitter, now_ns=now_ns)


def test_it_runs_at_full_speed_until_it_is_refused() -> None:
    assert throttle().permille(10**15) == 1_000


def test_a_refusal_halves_the_speed_of_now() -> None:
    """zotero-mcp#549: what was derived from the opening rate made a wait of 33 hours."""
    tested = throttle()
    refuse(tested, 10)
    refuse(tested, 31)
    assert tested.permille(31 * SECOND_NS) == (500 + 200) // 2


def test_speed_comes_back_in_equal_steps_and_only_after_the_pause() -> None:
    tested = throttle()
    refuse(tested, 0, retry_after_s=10)
    assert [tested.permille(s * SECOND_NS) for s in (5, 10, 20, 30, 60, 600)] == [500, 500, 600, 700, 1_000, 1_000]


def test_a_volley_of_refusals_slows_down_once() -> None:
    tested = throttle()
    for _ in range(20):
        tested.refused(granted_ns=0, retry_after_ns=None, jitter=0, now_ns=SECOND_NS)
    assert tested.permille(SECOND_NS) == 500
    assert tested.paused_until_ns == 2 * SECOND_NS


def test_the_pause_is_what_the_provider_asks_for_and_grows_by_itself_where_it_asks_for_nothing() -> None:
    asked, growing = throttle(), throttle()
    refuse(asked, 0, retry_after_s=17)
    assert asked.paused_until_ns == 17 * SECOND_NS
    for number, pause_s in enumerate([1, 2, 4, 8, 16, 32, 60, 60]):
        refuse(growing, 100 * number)
        assert growing.paused_until_ns == (100 * number + pause_s) * SECOND_NS


def test_a_call_that_goes_through_makes_the_next_pause_short_again() -> None:
    tested = throttle()
    for number in range(5):
        refuse(tested, 100 * number)
    tested.accepted()
    refuse(tested, 1_000)
    assert tested.paused_until_ns == 1_001 * SECOND_NS


def test_a_retry_after_of_zero_is_no_reason_to_hammer() -> None:
    tested = throttle()
    refuse(tested, 0, retry_after_s=0)
    assert tested.paused_until_ns == SECOND_NS


def test_replicas_told_the_same_do_not_come_back_together() -> None:
    """ShokoServer#1348: all waiters woke at the same moment, 60 attempts a call."""
    ends = []
    for jitter in (0.0, 0.25, 0.5, 0.75):
        tested = throttle()
        refuse(tested, 0, retry_after_s=20, jitter=jitter)
        ends.append(tested.paused_until_ns)
    assert len(set(ends)) == 4
    assert min(ends) == 20 * SECOND_NS
    assert max(ends) <= 25 * SECOND_NS


@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 10**12),
            st.none() | st.integers(0, 10**17),
            st.floats(0, 1, exclude_max=True),
            st.sampled_from(["refused", "paused", "accepted"]),
        )
    )
)
def test_no_history_makes_a_pause_longer_than_its_limit_or_a_speed_outside_its_bounds(
    steps: list[tuple[int, int | None, float, str]],
) -> None:
    tested, now_ns = throttle(), 0
    for later_ns, retry_after_ns, jitter, what in steps:
        granted_ns, now_ns = now_ns, now_ns + later_ns
        match what:
            case "refused":
                tested.refused(granted_ns=granted_ns, retry_after_ns=retry_after_ns, jitter=jitter, now_ns=now_ns)
            case "paused":
                tested.pause(pause_ns=retry_after_ns or 1, jitter=jitter, now_ns=now_ns)
            case _:
                tested.accepted()
        assert tested.paused_until_ns - now_ns <= POLICY.pause_ns_max
        assert 50 <= tested.permille(now_ns) <= 1_000
