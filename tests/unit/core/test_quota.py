from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from worker.core.buckets import MINUTE_NS, SECOND_NS
from worker.core.charging import OPENAI_CHARGING, Dimension, Estimate, Reservation
from worker.core.quota import Limits, Quota
from worker.core.ratelimit_headers import RateLimitHeaders, RateLimitStatus
from worker.core.throttle import Throttle, ThrottlePolicy

POLICY = ThrottlePolicy(
    slowdown_permille=500, floor_permille=50, recovery_ns=MINUTE_NS, pause_ns=SECOND_NS, pause_ns_max=MINUTE_NS
)


def quota(limits: Mapping[Dimension, int] | None = None, *, learns_limits: bool = True) -> Quota:
    """Full at 0, with a minute's burst."""
    return Quota(
        limits=Limits(per_minute=limits or {}),
        throttle=Throttle(POLICY, now_ns=0),
        burst_ns=MINUTE_NS,
        initial_burst_ns=MINUTE_NS,
        unseen_ns_max=10 * SECOND_NS,
        learns_limits=learns_limits,
        now_ns=0,
    )


def call(tokens: int) -> Mapping[Dimension, Reservation]:
    return OPENAI_CHARGING.reserve(Estimate(input_tokens=tokens, output_tokens_max=0))


def says(limit: int | None, remaining: int | None, reset_s: float | None = None) -> RateLimitHeaders:
    return RateLimitHeaders({Dimension.TOKENS: RateLimitStatus(limit, remaining, reset_s)})


def used(tokens: int) -> Mapping[Dimension, int]:
    return {Dimension.REQUESTS: 1, Dimension.TOKENS: tokens, Dimension.INPUT_TOKENS: tokens, Dimension.OUTPUT_TOKENS: 0}


def test_without_limits_everything_goes_at_once() -> None:
    assert quota().ready_at_ns(call(10**9), 5) == 5


def test_a_call_gets_all_of_its_reservation_or_nothing() -> None:
    tested = quota({Dimension.REQUESTS: 600, Dimension.TOKENS: 1_000})
    tested.grant(call(900), 0)
    assert tested.ready_at_ns(call(200), 0) is None
    assert tested.available(0) == {Dimension.REQUESTS: 599, Dimension.TOKENS: 100}


def test_a_limit_that_only_the_provider_names_is_taken_over() -> None:
    tested = quota()
    grant = tested.grant(call(100), 0)
    tested.sent(grant, 0)
    tested.learn(grant, says(1_000, 300), 0)
    assert tested.available(0) == {Dimension.TOKENS: 300}
    tested.settle(grant, used(100), 0)
    assert tested.available(0) == {Dimension.TOKENS: 300}


def test_limits_are_learned_only_if_that_is_wanted() -> None:
    tested = quota(learns_limits=False)
    tested.learn(tested.grant(call(1), 0), says(1_000, 0), 0)
    assert tested.available(0) == {}


def test_the_provider_can_tighten_a_configured_limit_and_not_widen_it() -> None:
    tested = quota({Dimension.TOKENS: 1_000})
    grant = tested.grant(call(0), 0)
    tested.learn(grant, says(10**6, 10**6), 0)
    assert tested.available(MINUTE_NS) == {Dimension.TOKENS: 1_000}
    tested.learn(grant, says(100, 100), MINUTE_NS)
    assert tested.available(MINUTE_NS) == {Dimension.TOKENS: 100}


def test_what_other_replicas_have_used_is_seen_in_the_remainder() -> None:
    tested = quota({Dimension.TOKENS: 6_000})
    grant = tested.grant(call(1_000), 0)
    tested.sent(grant, 0)
    tested.settle(grant, used(1_000), 0)
    tested.learn(grant, says(6_000, 200), 0)
    assert tested.available(0) == {Dimension.TOKENS: 200}


def test_an_old_remainder_does_not_take_back_what_came_in_since() -> None:
    tested = quota({Dimension.TOKENS: 6_000})
    grant = tested.grant(call(6_000), 0)
    tested.sent(grant, 0)
    tested.settle(grant, used(6_000), 0)
    tested.learn(grant, says(6_000, 0), 20 * SECOND_NS)
    assert tested.available(20 * SECOND_NS) == {Dimension.TOKENS: 2_000}


def test_calls_that_a_remainder_counts_already_are_not_counted_again() -> None:
    """Whether a header was written when its call arrived or when it was answered."""
    tested = quota({Dimension.TOKENS: 6_000})
    slow = tested.grant(call(100), 0)
    tested.sent(slow, 0)
    for _ in range(5):
        quick = tested.grant(call(1_000), 0)
        tested.sent(quick, 0)
        tested.settle(quick, used(1_000), 0)
    tested.learn(slow, says(6_000, 900), 0)
    tested.settle(slow, used(100), 0)
    assert tested.available(0) == {Dimension.TOKENS: 900}


def test_a_limit_per_day_shows_in_its_reset_and_is_followed_once_little_is_left() -> None:
    tested = quota({Dimension.TOKENS: 14_400})
    grant = tested.grant(call(0), 0)
    tested.learn(grant, says(14_400, 7_200, reset_s=43_200), 0)
    assert tested.ready_at_ns(call(7_200), 0) == 0
    tested.learn(grant, says(14_400, 0, reset_s=86_400), 0)
    assert tested.ready_at_ns(call(10), 0) == MINUTE_NS


def test_a_call_beyond_a_configured_limit_is_too_large_and_beyond_a_learned_one_the_provider_judges() -> None:
    """A proxy that says `limit: 1` must not turn every answer into a dead letter."""
    tested = quota({Dimension.TOKENS: 1_000})
    too_large = tested.too_large(OPENAI_CHARGING.needed_at_admission(Estimate(900, 101)))
    assert too_large is not None
    assert (too_large.dimension, too_large.tokens, too_large.limit) == (Dimension.TOKENS, 1_001, 1_000)
    tested.learn(tested.grant(call(0), 0), says(1, 1), 0)
    assert tested.too_large(OPENAI_CHARGING.needed_at_admission(Estimate(900, 0))) is None
    assert tested.ready_at_ns(call(900), MINUTE_NS) == MINUTE_NS


@given(
    statuses=st.dictionaries(
        st.sampled_from(Dimension),
        st.builds(
            RateLimitStatus,
            st.none() | st.integers(0, 10**12),
            st.none() | st.integers(0, 10**12),
            st.none() | st.floats(0, 86_400),
        ),
    ),
    tokens=st.integers(0, 10**6),
)
def test_whatever_a_header_says_the_next_call_is_at_most_a_debt_and_a_full_bucket_away(
    statuses: Mapping[Dimension, RateLimitStatus], tokens: int
) -> None:
    tested = quota({Dimension.TOKENS: 1_000})
    grant = tested.grant(call(10), 0)
    tested.sent(grant, 0)
    tested.learn(grant, RateLimitHeaders(statuses), 0)
    tested.settle(grant, used(10), 0)
    ready_ns = tested.ready_at_ns(call(tokens), 0)
    assert ready_ns is not None
    assert ready_ns <= 2 * MINUTE_NS
