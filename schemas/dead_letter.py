"""Why a record was set aside, and the headers that say so on the dead-letter topic."""

from enum import StrEnum


class DeadLetterReason(StrEnum):
    """A closed set: every dead letter has exactly one of these."""

    NOT_JSON = "not_json"
    INVALID_EVENT = "invalid_event"
    UNSUPPORTED_VERSION = "unsupported_version"
    TOO_LARGE = "too_large"
    CONFLICTING_CONTENT = "conflicting_content"
    JUDGE_INCOMPLETE = "judge_incomplete"
    JUDGE_REFUSED = "judge_refused"
    BUDGET_EXHAUSTED = "budget_exhausted"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
