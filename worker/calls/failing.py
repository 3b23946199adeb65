"""What a failed call means for the record, and when it may be tried again."""

from dataclasses import dataclass
from typing import assert_never

from schemas.dead_letter import DeadLetterReason
from worker.core.calls import CallFailure, CallProblem
from worker.errors import FatalError, PermanentError, RetryableError
from worker.llm_ports import ProviderDownError

TRANSIENT_PAUSE_S = 0.5
"""After a first failure of the provider's; doubles, with jitter."""

DOUBLINGS_MAX = 6

QUOTA_PAUSE_S = 60.0
"""How often to look whether an operator has filled the account."""

REFUSED_S_MAX = 600.0
"""A call that the provider's limits refuse for so long waits on as in an outage: seen, and open to a fallback."""


@dataclass(slots=True)
class Failures:
    """What one call has been through since it was first made, up to `transient_max` failures of the provider's.

    `answered_at_first` is how many calls in all the provider had answered when it failed this one first.
    """

    transient_max: int
    transient: int = 0
    answered_at_first: int = 0
    refused_since_s: float | None = None

    def pause_s(self, problem: CallProblem, told: str, *, answered: int, now_s: float, jitter: float) -> float:
        """Seconds after which the call may be made again, if the limiter lets it.

        A provider that fails one request again and again, and answers others, has a quarrel with that request; one
        that answers nobody is down, and no record's fault. `answered` is how many calls it has answered until now;
        `jitter` is in [0, 1).

        Raises:
            RetryableError: an attempt of this record is used up.
            PermanentError: this request will never be served.
            ProviderDownError: nobody is served now.
            FatalError: we are not known.
        """
        match problem.failure:
            case CallFailure.THROTTLED | CallFailure.OVERLOADED:
                return self._refused(told, now_s)
            case CallFailure.TRANSIENT:
                return self._failed(told, answered, jitter)
            case CallFailure.QUOTA:
                raise ProviderDownError(f"{told}: the account is out of quota", retry_after_s=QUOTA_PAUSE_S)
            case CallFailure.DENIED:
                raise FatalError(f"{told}: check the API key, the account's rights and judge.model")
            case CallFailure.REFUSED | CallFailure.REJECTED:
                raise PermanentError(DeadLetterReason.JUDGE_REFUSED, told)
            case _:
                assert_never(problem.failure)

    def _refused(self, told: str, now_s: float) -> float:
        if self.refused_since_s is None:
            self.refused_since_s = now_s
        if now_s - self.refused_since_s >= REFUSED_S_MAX:
            raise ProviderDownError(f"{told}, again and again for {REFUSED_S_MAX:g} s")
        return 0.0  # the limiter was told, and lets nobody through too early

    def _failed(self, told: str, answered: int, jitter: float) -> float:
        self.refused_since_s = None
        if not self.transient:
            self.answered_at_first = answered
        self.transient += 1
        if self.transient < self.transient_max:
            return TRANSIENT_PAUSE_S * 2.0 ** min(self.transient - 1, DOUBLINGS_MAX) * (0.5 + jitter)
        if answered == self.answered_at_first:
            raise ProviderDownError(f"{told}, {self.transient} times, and no other call was answered meanwhile")
        raise RetryableError(f"{told}, {self.transient} times, while other calls were answered")
