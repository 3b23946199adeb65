"""A consumed record → the answer it carries."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.answer_generated import AnswerGenerated, SourceDocument, count_unknown_fields
from schemas.dead_letter import DeadLetterReason
from schemas.values import Identifier
from worker.codec.envelopes import Opened, open_event
from worker.codec.identity import content_hash
from worker.codec.problems import invalid_event
from worker.codec.replays import replays_of
from worker.core.model import Answer, AnswerId, AnswerKey, OwnerId, Reward, SearchUsage, Source, SourceId, TenantId
from worker.core.records import Record
from worker.errors import PermanentError

OCCURRED_AT_MIN: Final = datetime(2000, 1, 1, tzinfo=UTC)
CLOCK_SKEW_MAX: Final = timedelta(days=1)
"""How far a producer's clock may run ahead of ours."""


class EventLimits(Protocol):
    """The intake settings that bound one event."""

    @property
    def event_bytes_max(self) -> int: ...

    @property
    def sources_max(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Decoded:
    """An answer, and what was passed over or replaced to read it."""

    answer: Answer
    unknown_field_count: int
    scrubbed_count: int


def decode_answer(record: Record, *, limits: EventLimits, now: datetime) -> Decoded:
    """Read one record; tombstones are the caller's to skip.

    Raises:
        PermanentError: too_large, not_json, unsupported_version or invalid_event. The detail names the field and
            what is wrong with it, and quotes nothing of the payload.
    """
    if record.value is None:
        raise ValueError("a tombstone holds no answer")
    if record.size_bytes > limits.event_bytes_max:
        problem = f"{record.size_bytes} bytes, at most {limits.event_bytes_max} are read (intake.event_bytes_max)"
        raise PermanentError(DeadLetterReason.TOO_LARGE, problem)
    opened = open_event(record.headers, record.value)
    _require_limits(opened.event, limits, now)
    answer = _answer(opened, replays_of(record.headers))
    return Decoded(answer, count_unknown_fields(opened.event), opened.scrubbed_count)


def read_answer_key(record: Record) -> AnswerKey | None:
    """The key of an event that may be invalid otherwise, so that its dead letter can be found by it."""
    for model in (_Keyed, _KeyedEnvelope):
        try:
            read = model.model_validate_json(record.value or b"")
        except ValidationError:
            continue
        keyed = read.data if isinstance(read, _KeyedEnvelope) else read
        return AnswerKey(TenantId(keyed.tenant), AnswerId(keyed.answer_id))
    return None


class _Keyed(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    answer_id: Identifier
    tenant: Identifier = "default"


class _KeyedEnvelope(BaseModel):
    data: _Keyed


def _require_limits(event: AnswerGenerated, limits: EventLimits, now: datetime) -> None:
    if event.occurred_at < OCCURRED_AT_MIN:
        raise invalid_event("occurred_at", f"lies before {OCCURRED_AT_MIN:%Y-%m-%d}")
    if event.occurred_at > now + CLOCK_SKEW_MAX:
        raise invalid_event("occurred_at", "lies more than a day in the future")
    if len(event.sources) > limits.sources_max:
        problem = f"{len(event.sources)} sources, at most {limits.sources_max} are read (intake.sources_max)"
        raise invalid_event("sources", problem)


def _answer(opened: Opened, replays: int) -> Answer:
    event = opened.event
    sources = tuple(_source(document) for document in event.sources)
    reward = Reward(Decimal(event.reward.amount), event.reward.currency) if event.reward else None
    search_llm = event.search_llm
    return Answer(
        key=AnswerKey(TenantId(event.tenant), AnswerId(event.answer_id)),
        occurred_at=event.occurred_at.astimezone(UTC),
        query=event.query,
        text=event.answer,
        sources=sources,
        content_hash=content_hash(event.query, event.answer, sources, reward),
        search_usage=SearchUsage(search_llm.model, search_llm.tokens) if search_llm else None,
        reward=reward,
        labels=event.labels,
        traceparent=opened.traceparent,
        replays=replays,
    )


def _source(document: SourceDocument) -> Source:
    owner_id = document.owner_id
    return Source(
        SourceId(document.source_id),
        document.text,
        owner_id=OwnerId(owner_id) if owner_id is not None else None,
        url=document.url,
        title=document.title,
        license_ref=document.license_ref,
    )
