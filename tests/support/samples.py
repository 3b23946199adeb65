"""Small answers, judgements and records for tests, all valid unless a test says otherwise."""

import hashlib
import json
from datetime import UTC, datetime
from decimal import Decimal

from worker.core.model import (
    Answer,
    AnswerId,
    AnswerKey,
    Judgement,
    KeyPoint,
    OwnerId,
    Quote,
    Source,
    SourceId,
    TenantId,
)
from worker.core.records import Record

OCCURRED_AT = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


def answer(
    answer_id: str = "a-1", *, tenant: str = "default", source_count: int = 3, text: str = "Tea is a drink."
) -> Answer:
    sources = tuple(
        Source(SourceId(f"s{index}"), f"Text of source {index}: tea is a drink.", OwnerId(f"owner-{index % 2}"))
        for index in range(source_count)
    )
    content = f"{text}|{source_count}".encode()
    return Answer(
        key=AnswerKey(TenantId(tenant), AnswerId(answer_id)),
        occurred_at=OCCURRED_AT,
        query="What is tea?",
        text=text,
        sources=sources,
        content_hash=hashlib.sha256(content).digest(),
    )


def judgement(rows: list[list[int]] | None = None, *, grounding_threshold: int = 3_000) -> Judgement:
    """A judgement with these supports (key points × sources, units of 10⁻⁴), each positive one quoted."""
    supports = tuple(tuple(row) for row in ([[10_000, 7_000, 0]] if rows is None else rows))
    quotes = {
        (row_index, source_index): Quote("tea is a drink")
        for row_index, row in enumerate(supports)
        for source_index, support in enumerate(row)
        if support
    }
    return Judgement(
        key_points=tuple(KeyPoint(f"Key point {index}.") for index in range(len(supports))),
        supports=supports,
        quotes=quotes,
        grounding_threshold=grounding_threshold,
    )


def event_of(given: Answer) -> dict[str, object]:
    """The wire event that says this answer."""
    event: dict[str, object] = {
        "schema_version": 1,
        "tenant": given.key.tenant,
        "answer_id": given.key.answer_id,
        "occurred_at": given.occurred_at.isoformat(),
        "query": given.query,
        "answer": given.text,
        "sources": [
            {"source_id": s.source_id, "text": s.text} | ({"owner_id": s.owner_id} if s.owner_id else {})
            for s in given.sources
        ],
    }
    if given.reward is not None:
        event["reward"] = {"amount": str(Decimal(given.reward.amount)), "currency": given.reward.currency}
    return event


def record(value: bytes | None = b"{}", *, offset: int = 0, partition: int = 0, topic: str = "answers") -> Record:
    return Record(
        topic=topic, partition=partition, offset=offset, timestamp_ms=1_780_000_000_000, key=b"k", value=value
    )


def record_of(given: Answer, *, offset: int = 0, partition: int = 0, topic: str = "answers") -> Record:
    return record(json.dumps(event_of(given)).encode(), offset=offset, partition=partition, topic=topic)
