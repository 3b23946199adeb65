"""How one record ended."""

from dataclasses import dataclass
from enum import StrEnum

from worker.core.model import AnswerKey, Attribution


class Outcome(StrEnum):
    """Every record ends in exactly one of these."""

    ATTRIBUTED = "attributed"
    UNGROUNDED = "ungrounded"
    NO_KEY_POINTS = "no_key_points"
    NO_SOURCES = "no_sources"
    DUPLICATE = "duplicate"
    SKIPPED = "skipped"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class Processed:
    """A record's outcome, and what of it is worth a log line."""

    outcome: Outcome
    answer_key: AnswerKey | None = None
    attribution: Attribution | None = None
