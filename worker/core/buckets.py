"""One token bucket, exact in integers: what a limit per minute lets through, and from when on.

A limit of L per minute refills L units a nanosecond, where one token is `MINUTE_NS` units: nothing is ever rounded, so
that a schedule gives the same grants on every machine and no error adds up over days.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

SECOND_NS: Final = 10**9
MINUTE_NS: Final = 60 * SECOND_NS
PERMILLE: Final = 1_000


@dataclass(slots=True)
class Due:
    """Held tokens that will be charged at `at_ns` if nothing is known before."""

    tokens: int
    at_ns: int


class Bucket:
    """Tokens that refill at `limit` a minute, up to `burst_ns` worth of it. Times must not run backwards.

    Tokens are *held* from the moment they are granted until they are known to be charged, or not. A provider's own
    bucket, if it began full, never has less than this one has free: whenever it charges, these tokens are held or gone,
    and a hold costs refill only where the bucket is full. More tokens than it takes are granted when all of it is free,
    and leave a debt. `departed` counts the tokens that may be charged by now, `charged` those that surely are.
    """

    def __init__(self, *, limit: int, burst_ns: int, level: int, now_ns: int) -> None:
        self.limit = limit
        self._held = 0
        self.departed = 0
        self.charged = 0
        self._burst_ns = burst_ns
        self._rate = limit
        self._at_ns = now_ns
        self._level = min(level * MINUTE_NS, self._capacity)
        self._dues: deque[Due] = deque()

    @property
    def _capacity(self) -> int:
        # Of the rate of now, never of the opening one: from empty to full it takes burst_ns at any rate.
        return self._rate * self._burst_ns

    def set_pace(self, limit: int, permille: int, now_ns: int) -> None:
        """From now on refill at `permille` thousandths of `limit`."""
        self._advance(now_ns)
        self.limit = limit
        self._rate = max(1, limit * permille // PERMILLE)
        self._level = self._bounded(self._level)

    def held(self, now_ns: int) -> int:
        """Tokens granted of which nobody knows yet whether they are charged."""
        self._advance(now_ns)
        return self._held

    def available(self, now_ns: int) -> int:
        """Whole tokens that nobody holds; negative while a debt is paid back."""
        self._advance(now_ns)
        return self._level // MINUTE_NS - self._held

    def ready_at_ns(self, tokens: int, now_ns: int) -> int | None:
        """When `tokens` (or a full bucket, if less) can be held, or it is worth another look.

        None: not before something held is settled.
        """
        self._advance(now_ns)
        need = min(tokens * MINUTE_NS, self._capacity) + self._held * MINUTE_NS
        if need <= self._level:
            return now_ns
        if need <= self._capacity:
            return now_ns - (self._level - need) // self._rate
        return self._dues[0].at_ns if self._dues else None

    def hold(self, tokens: int) -> None:
        """Keep tokens from others, whether or not they are there."""
        self._held += tokens

    def let_go(self, tokens: int) -> None:
        """Undo a hold: nothing was charged."""
        self._held -= tokens

    def charge(self, tokens: int, now_ns: int) -> None:
        """Tokens are used up, whether or not they are there."""
        self._advance(now_ns)
        self.departed += tokens
        self._charge(tokens)

    def charge_held_by(self, tokens: int, at_ns: int) -> Due:
        """Held tokens are being charged, and surely are by `at_ns`, which must not be before that of an earlier due."""
        self.departed += tokens
        due = Due(tokens, at_ns)
        self._dues.append(due)
        return due

    def charge_due(self, due: Due, now_ns: int) -> None:
        """It is known by now that they are charged."""
        self._advance(now_ns)
        self._pay(due)

    def lower_to(self, tokens: int, now_ns: int) -> None:
        """Believe that no more than `tokens` are left; a belief never makes a debt."""
        self._advance(now_ns)
        self._level = min(self._level, max(0, tokens) * MINUTE_NS)

    def refilled_since(self, since_ns: int, now_ns: int) -> int:
        """Tokens that the present rate adds from `since_ns` to now."""
        return self._rate * (now_ns - since_ns) // MINUTE_NS

    def _advance(self, now_ns: int) -> None:
        while self._dues and self._dues[0].at_ns <= now_ns:
            due = self._dues.popleft()
            self._refill(due.at_ns)
            self._pay(due)
        self._refill(now_ns)

    def _refill(self, now_ns: int) -> None:
        if now_ns > self._at_ns:
            self._level = min(self._level + self._rate * (now_ns - self._at_ns), self._capacity)
            self._at_ns = now_ns

    def _pay(self, due: Due) -> None:
        self._held -= due.tokens
        self._charge(due.tokens)
        due.tokens = 0

    def _charge(self, tokens: int) -> None:
        self._level = self._bounded(self._level - tokens * MINUTE_NS)
        self.charged += tokens

    def _bounded(self, level: int) -> int:
        # A debt takes at most a minute to pay back. No call within the limit makes a larger one; a call beyond a limit
        # that was lowered under its feet, perhaps by a garbled header, must not stop the account for days.
        return max(min(level, self._capacity), -self._rate * MINUTE_NS)
