"""Errors, named by what the worker does next.

    WorkerError
    ├── RetryableError     back off and run the record again; one attempt is used up
    ├── UnavailableError   something we depend on is down: pause intake, wait, use up nothing
    ├── PermanentError     the record can never succeed: dead-letter it and move on
    └── FatalError         stop: going on would lose data or money

Anything else is a bug: the worker stops and the record's offset stays uncommitted. Adapters translate at the seam.
A message never quotes payload text.
"""

from schemas.dead_letter import DeadLetterReason


class WorkerError(Exception):
    """Base of every error this worker raises on purpose."""


class RetryableError(WorkerError):
    """Run the record again after a pause; one of its attempts is used up."""

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float | None = None,
        exhausted_reason: DeadLetterReason = DeadLetterReason.ATTEMPTS_EXHAUSTED,
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.exhausted_reason = exhausted_reason


class UnavailableError(WorkerError):
    """Something we depend on is down; wait for it without using up the record's attempts or deadline."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class PermanentError(WorkerError):
    """The record can never succeed; it becomes a dead letter with this reason."""

    def __init__(self, reason: DeadLetterReason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail


class FatalError(WorkerError):
    """Stop the worker; the message says what an operator should do."""
