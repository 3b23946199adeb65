"""How long to wait before a record runs again, and when to stop trying: a pure decision."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with full jitter under a cap (times in seconds)."""

    attempts_max: int
    backoff_base_s: float
    backoff_max_s: float
    outage_backoff_max_s: float

    def pause_after_failure_s(self, attempt: int, jitter: float, retry_after_s: float | None = None) -> float | None:
        """Seconds to wait after failed attempt number `attempt` (from 1); None when no attempt is left.

        `jitter` in [0, 1) is drawn by the caller. What the failing side asked for (`retry_after_s`) is a floor, under
        the same cap, so that an absurd answer cannot park a record for hours.
        """
        if attempt >= self.attempts_max:
            return None
        return self._pause_s(attempt, jitter, self.backoff_max_s, retry_after_s)

    def pause_in_outage_s(self, tries: int, jitter: float, retry_after_s: float | None = None) -> float:
        """Seconds before the next look at something that is down; never gives up."""
        return self._pause_s(tries, jitter, self.outage_backoff_max_s, retry_after_s)

    def _pause_s(self, tries: int, jitter: float, cap_s: float, retry_after_s: float | None) -> float:
        # 2³⁰ is far beyond any cap; the bound keeps the power finite after days of outage.
        ceiling_s = min(cap_s, self.backoff_base_s * 2.0 ** min(tries - 1, 30))
        floor_s = min(cap_s, max(0.0, retry_after_s or 0.0))
        return max(floor_s, ceiling_s * (0.5 + jitter / 2))
