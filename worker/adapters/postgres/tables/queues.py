"""What waits for someone: messages for the relay, dead letters and resumes for the operator."""

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    text,
)

from schemas.dead_letter import DeadLetterReason
from worker.adapters.postgres.tables.columns import hash_lengths, metadata, moment, not_negative, one_of, sha256, words

HEADERS_COMMENT = (
    "Record headers in order, duplicates kept: for each name and value its length as 4 bytes big-endian, then its bytes"
    "; a length of -1: no value"
)


class DeadLetterState(StrEnum):
    """What an operator has done about a dead letter."""

    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


outbox = Table(
    "outbox",
    metadata,
    Column("outbox_id", BigInteger, Identity(always=True), comment="Order of publication per key"),
    words("topic", "Kafka topic to publish to"),
    Column("key", LargeBinary, comment="Record key; rows of one topic and key are published one after the other"),
    Column("value", LargeBinary, comment="Record value; NULL is a tombstone"),
    Column("headers", LargeBinary, nullable=False, comment=HEADERS_COMMENT),
    moment("created_at", "Database time of the transaction it announces", default="now()"),
    PrimaryKeyConstraint("outbox_id"),
    # A hash index: a dead letter's key may be longer than a B-tree can hold.
    Index(None, "key", postgresql_using="hash"),
    # Every row lives for a moment only; dead rows at the old end slow every claim down.
    postgresql_with={
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 1000,
        "autovacuum_vacuum_cost_delay": 0,
    },
    comment="Messages stored with what they announce and not yet published; the relay deletes what it has published.",
)

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("dead_letter_id", BigInteger, Identity(always=True), comment="Identity for the command line"),
    words("topic", "Kafka topic of the record"),
    Column("partition", Integer, nullable=False, comment="Kafka partition of the record"),
    Column("record_offset", BigInteger, nullable=False, comment="Kafka offset of the record"),
    sha256("value_hash", "the whole value, also when only its beginning is kept"),
    Column("record_timestamp_ms", BigInteger, nullable=False, comment="The record's own timestamp, unchecked"),
    Column("key", LargeBinary, comment="Record key, untouched"),
    Column("value", LargeBinary, comment="Record value, untouched; its beginning only when value_size_bytes is larger"),
    Column("value_size_bytes", BigInteger, nullable=False, comment="Size of the whole value"),
    Column("headers", LargeBinary, nullable=False, comment=HEADERS_COMMENT),
    words("reason", "Why it was set aside, of a closed set"),
    words("detail", "The fault in words, without payload text"),
    Column("attempts", Integer, nullable=False, comment="How often it was tried"),
    words("tenant", "Tenant, where it could be read", null=True),
    words("answer_id", "Answer, where it could be read", null=True),
    words("code_version", "Version of the worker that gave up"),
    moment("created_at", "Database time", default="clock_timestamp()"),
    words("state", "open, replayed or discarded", default=DeadLetterState.OPEN.value),
    moment("resolved_at", "When an operator replayed or discarded it", null=True),
    words("resolution_note", "What the operator said about it", null=True),
    PrimaryKeyConstraint("dead_letter_id"),
    UniqueConstraint("topic", "partition", "record_offset", "value_hash"),
    Index(None, "topic", "created_at"),
    Index(None, "tenant", "answer_id", postgresql_where=text("answer_id IS NOT NULL")),
    one_of("reason", DeadLetterReason),
    one_of("state", DeadLetterState),
    CheckConstraint("(state = 'open') = (resolved_at IS NULL)", "resolved"),
    not_negative("partition", "record_offset", "value_size_bytes", "attempts"),
    hash_lengths("value_hash"),
    comment="Records set aside, with the reason; the limits that stop a bad deploy are counted from this table.",
)

intake_resumes = Table(
    "intake_resumes",
    metadata,
    Column("resume_id", BigInteger, Identity(always=True), comment="Identity"),
    words("topic", "Kafka topic whose dead-letter limits start anew"),
    moment("resumed_at", "Database time", default="clock_timestamp()"),
    words("reason", "What the operator found and did"),
    words("resumed_by", "Database role that did it"),
    PrimaryKeyConstraint("resume_id"),
    Index(None, "topic", "resumed_at"),
    CheckConstraint("reason <> ''", "reason"),
    comment="Every time an operator let the worker go on after its dead-letter limits were passed.",
)
