from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker.core.breaker import BreakerState, CircuitBreaker, Ticket

FAILURES_MAX = 3
OPEN_NS = 100


def breaker() -> CircuitBreaker:
    return CircuitBreaker(failures_max=FAILURES_MAX, open_ns=OPEN_NS)


def opened() -> CircuitBreaker:
    """Open from 0 to 100."""
    tested = breaker()
    for _ in range(FAILURES_MAX):
        tested.failed(tested.let_through(), 0)
    return tested


def state_of(tested: CircuitBreaker) -> BreakerState:
    return tested.state


def test_failures_in_a_row_open_it_and_an_answer_breaks_the_row() -> None:
    tested = breaker()
    for _ in range(FAILURES_MAX - 1):
        tested.failed(tested.let_through(), 0)
    tested.answered(tested.let_through())
    for _ in range(FAILURES_MAX - 1):
        tested.failed(tested.let_through(), 0)
    assert state_of(tested) is BreakerState.CLOSED
    tested.failed(tested.let_through(), 0)
    assert state_of(tested) is BreakerState.OPEN


def test_an_open_breaker_says_how_long_to_stay_away() -> None:
    assert [opened().retry_after_ns(now_ns) for now_ns in (0, 40, 99, 100)] == [100, 60, 1, 0]


def test_when_the_time_is_over_a_single_call_probes() -> None:
    tested = opened()
    tested.let_through()
    assert state_of(tested) is BreakerState.HALF_OPEN
    assert tested.retry_after_ns(100) > 0


def test_the_probe_decides() -> None:
    good, bad = opened(), opened()
    good.answered(good.let_through())
    bad.failed(bad.let_through(), 100)
    assert state_of(good) is BreakerState.CLOSED
    assert bad.retry_after_ns(100) == OPEN_NS


def test_an_abandoned_probe_leaves_its_place_to_the_next_call() -> None:
    tested = opened()
    tested.abandoned(tested.let_through(), 150)
    assert tested.retry_after_ns(150) == 0
    tested.answered(tested.let_through())
    assert state_of(tested) is BreakerState.CLOSED


def test_a_call_from_before_the_outage_neither_ends_nor_renews_it() -> None:
    tested = breaker()
    early = tested.let_through()
    for _ in range(FAILURES_MAX):
        tested.failed(tested.let_through(), 0)
    tested.answered(early)
    tested.failed(early, 50)
    assert tested.retry_after_ns(60) == 40
    probe = tested.let_through()
    tested.answered(early)
    assert state_of(tested) is BreakerState.HALF_OPEN
    tested.answered(probe)
    tested.failed(early, 200)
    assert state_of(tested) is BreakerState.CLOSED


class BreakerAgainstHistory(RuleBasedStateMachine):
    """The breaker beside a model that keeps the whole history and reads the state from it each time."""

    def __init__(self) -> None:
        super().__init__()
        self.tested = breaker()
        self.now_ns = 0
        self.calls: list[Ticket] = []
        self.probe: Ticket | None = None
        self.row: list[Ticket] = []
        self.open_until_ns: int | None = None
        self.generation: list[Ticket] = []

    @rule(later_ns=st.integers(0, 150))
    def time_passes(self, later_ns: int) -> None:
        self.now_ns += later_ns

    @precondition(lambda self: self.tested.retry_after_ns(self.now_ns) == 0)
    @rule()
    def a_call_goes_out(self) -> None:
        ticket = self.tested.let_through()
        if self.open_until_ns is not None:
            assert self.probe is None
            self.probe = ticket
        else:
            self.generation.append(ticket)
        self.calls.append(ticket)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def a_call_is_answered(self, data: st.DataObject) -> None:
        ticket = self._one_of_the_calls(data)
        self.tested.answered(ticket)
        if self.open_until_ns is None and ticket in self.generation:
            self.row = []
        elif ticket == self.probe:
            self.open_until_ns, self.probe, self.row, self.generation = None, None, [], []

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def a_call_fails(self, data: st.DataObject) -> None:
        ticket = self._one_of_the_calls(data)
        self.tested.failed(ticket, self.now_ns)
        if self.open_until_ns is None and ticket in self.generation:
            self.row.append(ticket)
            if len(self.row) == FAILURES_MAX:
                self.open_until_ns, self.generation = self.now_ns + OPEN_NS, []
        elif ticket == self.probe:
            self.open_until_ns, self.probe = self.now_ns + OPEN_NS, None

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def a_call_is_abandoned(self, data: st.DataObject) -> None:
        ticket = self._one_of_the_calls(data)
        self.tested.abandoned(ticket, self.now_ns)
        if ticket == self.probe:
            self.open_until_ns, self.probe = self.now_ns, None

    @invariant()
    def the_state_is_what_the_history_says(self) -> None:
        if self.open_until_ns is None:
            expected = BreakerState.CLOSED
        else:
            expected = BreakerState.OPEN if self.probe is None else BreakerState.HALF_OPEN
        assert self.tested.state is expected

    @invariant()
    def calls_pass_when_closed_or_when_the_time_is_over(self) -> None:
        passes = self.open_until_ns is None or (self.probe is None and self.now_ns >= self.open_until_ns)
        assert (self.tested.retry_after_ns(self.now_ns) == 0) == passes

    def _one_of_the_calls(self, data: st.DataObject) -> Ticket:
        return self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))


TestBreakerAgainstHistory = BreakerAgainstHistory.TestCase
