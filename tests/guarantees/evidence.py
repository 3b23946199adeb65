"""What a run left behind: the topics, the tables, the journal and the provider's bill, as plain data."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from schemas.dead_letter import DeadLetterReason
from worker.codec import decode_answer
from worker.core.model import Answer, AnswerKey
from worker.core.records import Record
from worker.embedded.llm_emulator.bill import BillLine
from worker.errors import PermanentError
from worker.settings import IntakeSettings

Row = Mapping[str, Any]
Position = tuple[int, int]
"""Partition and offset in the answers topic."""
Content = tuple[AnswerKey, bytes]
"""Whose answer, and the hash of its content."""

LIMITS = IntakeSettings()


@dataclass(frozen=True)
class Sent:
    """A record as it stands in the answers topic, and what can be read of it.

    A tombstone has neither `answer` nor `refusal`.
    """

    record: Record
    answer: Answer | None = None
    refusal: DeadLetterReason | None = None

    @property
    def position(self) -> Position:
        return self.record.partition, self.record.offset

    @property
    def where(self) -> str:
        return f"record {self.record.partition}/{self.record.offset}"

    @property
    def content(self) -> Content | None:
        return None if self.answer is None else (self.answer.key, self.answer.content_hash)


def sent(record: Record) -> Sent:
    """The record, read by itself: without a worker, without a table."""
    if record.value is None:
        return Sent(record)
    try:
        return Sent(record, answer=decode_answer(record, limits=LIMITS, now=datetime.now(UTC)).answer)
    except PermanentError as error:
        return Sent(record, refusal=error.reason)


@dataclass(frozen=True)
class Evidence:
    """Everything that guarantees are checked against, once nothing moves any more.

    Rows are those of the tables by the same names. `published` are the messages of the attributions topic.
    `committed_too_far` and `bugs` are findings from during the run: of whoever watched the commits, and of the logs.
    `calls_cut_off_max` bounds the calls that were in flight in a worker when that was killed or frozen.
    """

    records: Sequence[Sent]
    committed: Mapping[int, int]
    ends: Mapping[int, int]
    answers: Sequence[Row]
    attributions: Sequence[Row]
    source_attributions: Sequence[Row]
    dead_letters: Sequence[Row]
    llm_calls: Sequence[Row]
    outbox_rows: int
    published: Sequence[Record]
    published_dead_letters: Sequence[Record]
    bill: Sequence[BillLine] = ()
    recomputed_otherwise: Sequence[str] = ()
    call_faults: Sequence[Row] = ()
    committed_too_far: Sequence[str] = ()
    bugs: Sequence[str] = ()
    calls_cut_off_max: int = 0

    @cached_property
    def settled(self) -> Mapping[AnswerKey, bytes]:
        """Content hash by answer."""
        return {key_of(row): bytes(row["content_hash"]) for row in self.answers}

    @cached_property
    def dead_letter_at(self) -> Mapping[Position, Row]:
        return {(row["partition"], row["record_offset"]): row for row in self.dead_letters}

    @cached_property
    def answer_of(self) -> Mapping[Content, Answer]:
        return {item.content: item.answer for item in self.records if item.content and item.answer}

    @cached_property
    def times_sent(self) -> Counter[Content]:
        return Counter(item.content for item in self.records if item.content)


def key_of(row: Row) -> AnswerKey:
    return AnswerKey(row["tenant"], row["answer_id"])
