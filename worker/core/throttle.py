"""How far to slow down when a provider refuses, and how to come back: additive increase, multiplicative decrease."""

from dataclasses import dataclass

from worker.core.buckets import PERMILLE


@dataclass(frozen=True, slots=True)
class ThrottlePolicy:
    """Times in ns, speeds in thousandths of the limits.

    `recovery_ns` is how long the way from a standstill back to full speed would take.
    """

    slowdown_permille: int
    floor_permille: int
    recovery_ns: int
    pause_ns: int
    pause_ns_max: int


class Throttle:
    """The speed of one account as a share of its limits, and the pause it is in. Times must not run backwards."""

    def __init__(self, policy: ThrottlePolicy, *, now_ns: int) -> None:
        self.paused_until_ns = now_ns
        self._policy = policy
        self._permille = PERMILLE
        self._since_ns = now_ns
        self._slowed_at_ns: int | None = None
        self._slowdowns_in_a_row = 0

    def permille(self, now_ns: int) -> int:
        """The speed now; it grows in equal steps over equal times, and not during a pause."""
        gained = max(0, now_ns - self._since_ns) * PERMILLE // self._policy.recovery_ns
        return min(PERMILLE, self._permille + gained)

    def refused(self, *, granted_ns: int, retry_after_ns: int | None, jitter: float, now_ns: int) -> None:
        """A call granted at `granted_ns` met a limit. `jitter` in [0, 1) lengthens the pause by up to a quarter.

        Calls granted before the last slowdown tell nothing new: a volley of refusals slows down once.
        """
        if self._slowed_at_ns is None or granted_ns > self._slowed_at_ns:
            # From the speed of now: what it was when all began says nothing about what is left.
            self._permille = max(
                self._policy.floor_permille, self.permille(now_ns) * self._policy.slowdown_permille // PERMILLE
            )
            self._since_ns = self._slowed_at_ns = now_ns
            self._slowdowns_in_a_row += 1
        # 2**20 pauses exceed any cap; the bound keeps the number small after days of refusals.
        own_ns = self._policy.pause_ns << min(max(self._slowdowns_in_a_row - 1, 0), 20)
        self.pause(pause_ns=retry_after_ns or own_ns, jitter=jitter, now_ns=now_ns)

    def pause(self, *, pause_ns: int, jitter: float, now_ns: int) -> None:
        """Grant nothing for `pause_ns` and a little more, so that replicas told the same do not come back together."""
        capped_ns = min(pause_ns, self._policy.pause_ns_max)
        until_ns = now_ns + min(capped_ns + int(capped_ns * jitter / 4), self._policy.pause_ns_max)
        self.paused_until_ns = max(self.paused_until_ns, until_ns)
        self._permille, self._since_ns = self.permille(now_ns), max(self._since_ns, self.paused_until_ns)

    def accepted(self) -> None:
        """A call went through: the next refusal begins a new row."""
        self._slowdowns_in_a_row = 0
