from hypothesis import given
from hypothesis import strategies as st

from worker.core.buckets import MINUTE_NS, SECOND_NS, Bucket

LIMITS = st.integers(1, 10**7)
SPANS_NS = st.integers(0, 5 * MINUTE_NS)


def bucket(limit: int = 600, burst_s: float = 60, level: int | None = None) -> Bucket:
    burst_ns = int(burst_s * SECOND_NS)
    return Bucket(limit=limit, burst_ns=burst_ns, level=limit if level is None else level, now_ns=0)


def test_what_is_held_is_not_there_for_others_and_comes_back_when_let_go() -> None:
    full = bucket(limit=100)
    full.hold(70)
    assert full.available(0) == 30
    full.let_go(70)
    assert full.available(0) == 100


def test_a_limit_refills_continuously_and_no_further_than_its_burst() -> None:
    empty = bucket(limit=600, burst_s=2, level=0)
    assert [empty.available(n * SECOND_NS // 2) for n in range(6)] == [0, 5, 10, 15, 20, 20]


@given(limit=LIMITS, tokens=st.integers(1, 10**7), wait_ns=SPANS_NS)
def test_ready_is_the_first_nanosecond_at_which_the_tokens_are_there(limit: int, tokens: int, wait_ns: int) -> None:
    def drained() -> Bucket:
        empty = bucket(limit=limit)
        empty.charge(limit, 0)
        empty.charge(0, wait_ns)
        return empty

    wanted = min(tokens, limit)
    ready_ns = drained().ready_at_ns(tokens, wait_ns)
    assert ready_ns is not None
    assert drained().available(ready_ns) >= wanted
    assert ready_ns == wait_ns or drained().available(ready_ns - 1) < wanted


def test_more_than_the_bucket_takes_goes_when_all_of_it_is_free_and_leaves_a_debt() -> None:
    small = bucket(limit=60, burst_s=10)
    assert small.ready_at_ns(40, 0) == 0
    small.charge(40, 0)
    assert small.available(0) == -30
    assert small.ready_at_ns(1, 0) == 31 * SECOND_NS


def test_a_hold_that_leaves_no_room_is_waited_for() -> None:
    held = bucket(limit=100)
    held.hold(60)
    assert held.ready_at_ns(50, 0) is None
    held.let_go(60)
    assert held.ready_at_ns(50, 0) == 0


def test_held_tokens_are_charged_at_the_latest_when_they_are_due() -> None:
    busy = bucket(limit=60)
    busy.hold(60)
    due = busy.charge_held_by(60, 10 * SECOND_NS)
    assert busy.ready_at_ns(1, 0) == 10 * SECOND_NS
    assert busy.held(9 * SECOND_NS) == 60
    assert busy.available(20 * SECOND_NS) == 10
    busy.charge_due(due, 20 * SECOND_NS)
    assert (busy.available(20 * SECOND_NS), busy.held(20 * SECOND_NS), busy.charged) == (10, 0, 60)


def test_what_is_known_to_be_charged_before_it_is_due_refills_from_then_on() -> None:
    busy = bucket(limit=60)
    busy.hold(60)
    due = busy.charge_held_by(60, 10 * SECOND_NS)
    busy.charge_due(due, 2 * SECOND_NS)
    assert (busy.available(12 * SECOND_NS), busy.held(12 * SECOND_NS), busy.charged) == (10, 0, 60)


def test_a_full_bucket_is_never_further_away_than_its_burst_however_slow_it_became() -> None:
    """zotero-mcp#549: the capacity of the opening rate over the collapsed rate made a wait of 33 hours."""
    collapsed = bucket(limit=10_000, level=0)
    collapsed.set_pace(10_000, 1, 0)
    assert collapsed.ready_at_ns(10_000, 0) == MINUTE_NS


@given(limit=LIMITS, charges=st.lists(st.integers(0, 10**7)), permille=st.integers(1, 1_000), told=LIMITS)
def test_no_debt_takes_more_than_a_minute_to_pay_back(limit: int, charges: list[int], permille: int, told: int) -> None:
    indebted = bucket(limit=limit)
    for tokens in charges:
        indebted.charge(tokens, 0)
    indebted.set_pace(told, permille, 0)
    indebted.charge(told, 0)
    ready_ns = indebted.ready_at_ns(1, 0)
    assert ready_ns is not None
    assert ready_ns <= 2 * MINUTE_NS


@given(limit=st.integers(1, 10**6), tokens=st.integers(-(10**6), 10**6))
def test_a_belief_only_lowers_and_never_makes_a_debt(limit: int, tokens: int) -> None:
    believed = bucket(limit=limit)
    believed.lower_to(tokens, 0)
    assert believed.available(0) == min(limit, max(0, tokens))


@given(
    limit=LIMITS,
    burst_s=st.integers(1, 60),
    steps=st.lists(st.tuples(st.integers(0, 20 * SECOND_NS), st.integers(1, 10**6)), max_size=20),
)
def test_no_span_of_time_is_charged_more_than_the_bucket_gives_in_it(
    limit: int, burst_s: int, steps: list[tuple[int, int]]
) -> None:
    tested = bucket(limit=limit, burst_s=burst_s)
    now_ns, charges = 0, []
    for pause_ns, tokens in steps:
        ready_ns = tested.ready_at_ns(min(tokens, limit), now_ns + pause_ns)
        assert ready_ns is not None
        now_ns = ready_ns
        tested.charge(min(tokens, limit), now_ns)
        charges.append((now_ns, min(tokens, limit)))
    for first, (since_ns, _) in enumerate(charges):
        for last in range(first, len(charges)):
            spent = sum(tokens for _, tokens in charges[first : last + 1])
            beyond = max(0, charges[last][1] * MINUTE_NS - limit * burst_s * SECOND_NS)
            given_units = limit * (burst_s * SECOND_NS + charges[last][0] - since_ns)
            assert spent * MINUTE_NS <= given_units + beyond
