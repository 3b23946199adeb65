"""Why a record was set aside, and the headers that say so on the dead-letter topic."""

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schemas.values import Sha256Hex

DETAIL_CHARACTERS_MAX: Final = 2_000
"""A longer explanation is cut."""

HEADER_PREFIX: Final = "dlq_"

REPLAY_HEADER: Final = HEADER_PREFIX + "replay"
"""Among the own headers of a record that was replayed from the dead letters: how often."""

REPLAYS_MAX: Final = 100
"""Each replay opens a new budget of attempts at the judge: who writes to the topic must not open them without end."""

RecordHeaders = tuple[tuple[str, bytes | None], ...]


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


class DeadLetterHeaders(BaseModel):
    """The headers added to a dead letter, after the record's own; each is text, named `dlq_` + the field.

    Where a record already carries `dlq_` headers (a dead letter that was consumed again), the last block counts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: DeadLetterReason
    detail: Annotated[str, Field(description="the field and what is wrong with it; never text of the payload")]
    topic: Annotated[str, Field(description="where the record was read")]
    partition: Annotated[int, Field(ge=0)]
    offset: Annotated[int, Field(ge=0)]
    timestamp: Annotated[int, Field(description="the record's own, in milliseconds since 1970")]
    attempts: Annotated[int, Field(ge=0, description="how often the record was run")]
    code_version: str
    truncated: Annotated[bool, Field(description="too large to copy: value, key and headers may be cut short")] = False
    original_size_bytes: Annotated[int | None, Field(ge=0, description="of the whole value")] = None
    original_sha256: Annotated[Sha256Hex | None, Field(description="of the whole value")] = None

    @model_validator(mode="after")
    def a_cut_record_can_be_recognised(self) -> Self:
        known = self.original_size_bytes is not None and self.original_sha256 is not None
        if self.truncated != known:
            raise ValueError("truncated, original_size_bytes and original_sha256 come together")
        return self

    def encode(self) -> tuple[tuple[str, bytes], ...]:
        """The headers in the order of the fields; those that do not apply are left out."""
        fields = self.model_dump(mode="json", exclude_defaults=True)
        return tuple((HEADER_PREFIX + name, _text(value).encode()) for name, value in fields.items())

    @classmethod
    def split(cls, headers: RecordHeaders) -> tuple[RecordHeaders, Self]:
        """The record's own headers, and the last block of added ones.

        Raises:
            ValueError: there is no complete block.
        """
        first_name = HEADER_PREFIX + next(iter(cls.model_fields))
        starts = [position for position, (name, _) in enumerate(headers) if name == first_name]
        if not starts:
            raise ValueError(f"not a dead letter: it has no header {first_name}")
        own, block = headers[: starts[-1]], headers[starts[-1] :]
        added = {name: (value or b"").decode() for name, value in block if name.startswith(HEADER_PREFIX)}
        # Whatever carried the record further may have added headers of its own behind ours.
        own += tuple(header for header in block if not header[0].startswith(HEADER_PREFIX))
        return own, cls.model_validate_strings({name.removeprefix(HEADER_PREFIX): text for name, text in added.items()})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
