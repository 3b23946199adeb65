"""Limits per minute by each provider's own rule, on a clock in the test's hand."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from worker.embedded.llm_emulator.nouns import Api
from worker.embedded.llm_emulator.rate_limits import SECOND_NS, Account, Bucket, Exceeded, Limited, RateLimits

SMALL = RateLimits(requests=10, tokens=1_000, input_tokens=1_000, output_tokens=1_000)


def admit(
    account: Account, *, now_s: float = 0, input_tokens: int = 100, cached: int = 0, cap: int = 50
) -> Exceeded | None:
    return account.admit(
        input_tokens=input_tokens, cached_tokens=cached, output_tokens_max=cap, now_ns=round(now_s * SECOND_NS)
    )


def remaining(account: Account, limited: Limited, now_s: float = 0) -> int:
    return account.states(round(now_s * SECOND_NS))[limited].remaining


def test_openai_charges_input_and_cap_when_a_request_arrives_and_gives_nothing_back() -> None:
    account = Account(Api.OPENAI, SMALL, 0)
    assert admit(account, input_tokens=100, cached=90, cap=400) is None
    account.produced(1, 0)
    assert remaining(account, Limited.TOKENS) == 500
    assert remaining(account, Limited.REQUESTS) == 9


def test_anthropic_charges_input_that_was_not_cached_and_output_that_came() -> None:
    account = Account(Api.ANTHROPIC, SMALL, 0)
    assert admit(account, input_tokens=100, cached=90, cap=400) is None
    assert remaining(account, Limited.INPUT_TOKENS) == 990
    assert remaining(account, Limited.OUTPUT_TOKENS) == 1_000
    account.produced(30, 0)
    assert remaining(account, Limited.OUTPUT_TOKENS) == 970


def test_anthropic_lets_nobody_in_while_output_is_owed() -> None:
    account = Account(Api.ANTHROPIC, SMALL, 0)
    account.produced(1_500, 0)
    exceeded = admit(account)
    assert exceeded == Exceeded(Limited.OUTPUT_TOKENS, limit=1_000, remaining=0, requested=1, wait_s=30.06)
    assert admit(account, now_s=30.05) is not None
    assert admit(account, now_s=30.06) is None


def test_the_wait_that_is_told_is_exactly_enough() -> None:
    account = Account(Api.OPENAI, SMALL, 0)
    assert admit(account, input_tokens=900, cap=100) is None
    exceeded = admit(account)
    assert exceeded == Exceeded(Limited.TOKENS, limit=1_000, remaining=0, requested=150, wait_s=9.0)
    assert admit(account, now_s=8.999) is not None
    assert admit(account, now_s=9.0) is None


def test_a_request_above_the_whole_limit_never_fits() -> None:
    exceeded = admit(Account(Api.OPENAI, SMALL, 0), input_tokens=1_001, cap=0)
    assert exceeded is not None
    assert exceeded.wait_s is None


def test_a_refused_request_takes_no_tokens_but_counts_as_a_request_with_openai() -> None:
    account = Account(Api.OPENAI, SMALL, 0)
    assert admit(account, input_tokens=1_001) is not None
    assert (remaining(account, Limited.REQUESTS), remaining(account, Limited.TOKENS)) == (9, 1_000)
    account = Account(Api.ANTHROPIC, SMALL, 0)
    assert admit(account, input_tokens=1_001) is not None
    assert remaining(account, Limited.REQUESTS) == 10


def test_without_limits_everything_is_let_in() -> None:
    account = Account(Api.OPENAI, RateLimits(), 0)
    assert all(admit(account) is None for _ in range(1_000))
    assert account.states(0) == {}


def test_a_shorter_burst_saves_up_less() -> None:
    account = Account(Api.OPENAI, RateLimits(requests=60, burst_s=2), 0)
    assert [admit(account, now_s=3_600) is None for _ in range(3)] == [True, True, False]


@given(
    limit=st.integers(1, 10_000),
    burst_s=st.sampled_from([1, 30, 60]),
    steps=st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 500)), max_size=30),
)
def test_a_bucket_is_the_textbooks_in_exact_fractions(limit: int, burst_s: int, steps: list[tuple[int, int]]) -> None:
    bucket = Bucket(limit, burst_s, 0)
    level = capacity = Fraction(limit * burst_s, 60)
    now_ns = 0
    for elapsed_ns, tokens in steps:
        now_ns += elapsed_ns
        level = min(capacity, level + Fraction(limit * elapsed_ns, 60 * SECOND_NS))
        wait_s = bucket.wait_s(tokens, now_ns)
        assert (wait_s is None) == (tokens > capacity)
        assert (wait_s == 0) == (tokens <= min(level, capacity))
        if wait_s == 0:
            bucket.take(tokens, now_ns)
            level -= tokens
        assert bucket.remaining(now_ns) == level.numerator // level.denominator


def test_a_bucket_made_while_its_first_request_was_on_the_way_is_full_for_it() -> None:
    account = Account(Api.OPENAI, RateLimits(requests=1), now_ns=5_000)
    assert account.admit(input_tokens=1, cached_tokens=0, output_tokens_max=1, now_ns=4_000) is None
