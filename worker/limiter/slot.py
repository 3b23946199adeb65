"""One granted call, and what becomes of its reservation."""

from collections.abc import Callable, Mapping

from worker.core.breaker import Ticket
from worker.core.llm import CompletionUsage
from worker.core.quota import Grant
from worker.limiter.account import REFUSALS, Account


class Slot:
    """Say `sent` before the call's first byte may leave, then what came of it. No method waits.

    Left without `settle`, a call that was never sent costs nothing; one that the provider refused costs what is charged
    for arriving; any other may have been served, and is charged all it reserved.
    """

    def __init__(
        self, *, account: Account, grant: Grant, ticket: Ticket, waited_s: float, on_change: Callable[[], None]
    ) -> None:
        self.waited_s = waited_s
        self._account = account
        self._grant = grant
        self._ticket = ticket
        self._on_change = on_change
        self._sent = False
        self._answered = False
        self._refused = False
        self._settled = False

    def sent(self) -> None:
        """From here on the call may reach the provider."""
        if not self._sent:
            self._sent = True
            self._account.sent(self._grant)

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """A response came, of this HTTP status; 429 and 529 are refusals, 5xx count towards an outage."""
        self.sent()
        self._answered = True
        self._refused = status in REFUSALS
        self._account.answered(self._grant, self._ticket, status, headers)
        self._on_change()

    def unanswered(self) -> None:
        """No response came: not connected, reset, or not in time. Counts towards an outage."""
        self._account.unanswered(self._ticket)
        self._on_change()

    def settle(self, usage: CompletionUsage) -> None:
        """Charge what the call really used; the rest of its reservation is there for others at once.

        Raises:
            RuntimeError: it is settled already.
        """
        if self._settled:
            raise RuntimeError("a call is settled once")
        if not self._answered:
            self.answered(200, {})
        self._settled = True
        self._account.settle(self._grant, usage)
        self._on_change()

    def leave(self) -> None:
        """The call is over. The limiter's context manager says so."""
        if not self._sent:
            self._account.withdraw(self._grant)
        elif self._refused and not self._settled:
            self._account.refused(self._grant)
        elif not self._settled:
            self._account.abandon(self._grant)
        self._account.ended(self._ticket)
        self._on_change()
