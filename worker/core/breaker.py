"""Whether a provider is down: closed, open after failures in a row, half open while one call probes."""

from enum import StrEnum
from typing import NewType

Ticket = NewType("Ticket", int)
"""Names the state a call was let through in; what it reports counts only while that state lasts."""


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """One per provider, shared by its models. Times in ns of one monotonic clock.

    Opens after `failures_max` outage-like failures with no answer in between; `open_ns` later it lets a single call
    through: its answer closes the breaker, its failure opens it again, and if it is abandoned the next call probes.
    """

    def __init__(self, *, failures_max: int, open_ns: int) -> None:
        self.state = BreakerState.CLOSED
        self._failures_max = failures_max
        self._open_ns = open_ns
        self._failures = 0
        self._open_until_ns = 0
        self._ticket = Ticket(0)

    def retry_after_ns(self, now_ns: int) -> int:
        """0: a call may pass. Otherwise how long to stay away."""
        match self.state:
            case BreakerState.CLOSED:
                return 0
            case BreakerState.OPEN:
                return max(0, self._open_until_ns - now_ns)
            case BreakerState.HALF_OPEN:
                return self._open_ns

    def let_through(self) -> Ticket:
        """A call goes out; only while `retry_after_ns` is 0."""
        if self.state is BreakerState.OPEN:
            self._enter(BreakerState.HALF_OPEN)
        return self._ticket

    def answered(self, ticket: Ticket) -> None:
        """The provider gave an answer of any kind that is no outage."""
        if ticket != self._ticket:
            return
        self._failures = 0
        if self.state is BreakerState.HALF_OPEN:
            self._enter(BreakerState.CLOSED)

    def failed(self, ticket: Ticket, now_ns: int) -> None:
        """No answer (refused, reset, timed out), or one that says the provider is down or overloaded."""
        if ticket != self._ticket:
            return
        self._failures += 1
        if self.state is BreakerState.HALF_OPEN or self._failures >= self._failures_max:
            self._failures = 0
            self._open_until_ns = now_ns + self._open_ns
            self._enter(BreakerState.OPEN)

    def abandoned(self, ticket: Ticket, now_ns: int) -> None:
        """The call ended without telling anything; was it the probe, the next call probes at once."""
        if ticket == self._ticket and self.state is BreakerState.HALF_OPEN:
            self._open_until_ns = now_ns
            self._enter(BreakerState.OPEN)

    def _enter(self, state: BreakerState) -> None:
        self.state = state
        self._ticket = Ticket(self._ticket + 1)
