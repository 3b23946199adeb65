"""What the worker needs from the outside, as protocols owned by their users; adapters implement them."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from schemas.dead_letter import DeadLetterReason
from worker.core.model import (
    Answer,
    AnswerIdentity,
    AnswerKey,
    Attribution,
    Judgement,
    JudgeProfile,
    TenantId,
)
from worker.core.outcome import Outcome
from worker.core.records import OutboundMessage, Record, TopicPartition


class RebalanceListener(Protocol):
    """What `consume` does when partitions come and go; both are awaited before the group moves on."""

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None: ...

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None: ...


class RecordStream(Protocol):
    """A consumer group's view of the answers topic. Needed by `consume`."""

    async def start(self, listener: RebalanceListener) -> None: ...

    async def fetch(self, *, records_max: int, timeout_ms: int) -> Sequence[Record]:
        """Up to `records_max` records of unpaused partitions, in order per partition; empty after the timeout.

        Must be called again within the maximum poll interval, also while everything is paused. The records belong to
        the assignment as it is when they are returned; a cancelled fetch may have lost some: fetch no more after it.

        Raises:
            UnavailableError: the broker cannot be reached.
            FatalError: reading on would skip records (offset out of range), or access is refused.
        """
        ...

    def assignment(self) -> frozenset[TopicPartition]: ...

    def pause(self, partitions: Collection[TopicPartition]) -> None: ...

    def resume(self, partitions: Collection[TopicPartition]) -> None: ...

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offset to read of each partition; partitions no longer assigned are left out.

        Raises:
            UnavailableError: not committed (rebalance, broker down, deadline); harmless, committed again later.
        """
        ...

    def lag(self) -> Mapping[TopicPartition, int | None]:
        """Records not yet fetched per assigned partition; None until a first fetch has told the high watermark."""
        ...

    async def stop(self) -> None: ...


class Judge(Protocol):
    """Whatever can fill a support matrix. Needed by `judge`."""

    @property
    def profile(self) -> JudgeProfile: ...

    async def judge(self, answer: Answer) -> Judgement:
        """Key points, supports and evidence of an answer with sources and text; nothing missing or invented.

        Raises:
            RetryableError: this try gave no usable verdict.
            PermanentError: it never will (refused).
            UnavailableError: the judge cannot be reached.
        """
        ...


@dataclass(frozen=True, slots=True)
class SettledAnswer:
    """What is already on record for a key."""

    content_hash: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """This very record is a dead letter already: it has its outcome."""


class SaveResult(StrEnum):
    """What became of a save."""

    SAVED = "saved"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    SET_ASIDE = "set_aside"


class AttributionStore(Protocol):
    """The system of record. Needed by `process`.

    Every method raises UnavailableError while the database is down, and FatalError when rights are missing.
    """

    async def find(self, key: AnswerKey, record: Record) -> SettledAnswer | SetAside | None:
        """What is on record for this answer, or for this record where it is a dead letter; None when both are new."""
        ...

    async def save(
        self, attribution: Attribution, message: OutboundMessage, record: Record | None = None
    ) -> SaveResult:
        """Key, answer, attribution with evidence, a row per source and the outbox row in one transaction.

        DUPLICATE: the key is settled with the same content; CONFLICT: with other content; SET_ASIDE: `record`, where
        it came from, became a dead letter meanwhile. None of them writes anything. Safe to call again when the outcome
        of a commit is unknown.

        Raises:
            RetryableError: this attribution cannot be stored as it is; neighbours in its batch are unaffected.
        """
        ...


class JudgementCache(Protocol):
    """Judgements of answers already attributed, to be copied at no cost. Needed by `judge`.

    `AttributionStore.save` fills it, in the transaction that settles.
    """

    async def find_judgement(self, tenant: TenantId, reuse_hash: bytes) -> Judgement | None:
        """The newest judgement of the same content (see `core.reuse`), whole, naming its origin; its usage is none.

        Raises:
            UnavailableError: the database is down.
        """
        ...


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record set aside, with the reason and whatever identity could be read from it."""

    record: Record
    reason: DeadLetterReason
    detail: str
    attempts: int
    identity: AnswerIdentity = field(default_factory=AnswerIdentity)


class DeadLetterStore(Protocol):
    """Where dead letters are kept. Needed by `settle`."""

    async def save_dead_letter(self, dead_letter: DeadLetter, message: OutboundMessage) -> Outcome:
        """A row and its outbox message, in one transaction; a redelivery of the same record changes nothing.

        Returns DEAD_LETTER; or DUPLICATE, with nothing written, where its answer was settled meanwhile with the same
        content, by a worker that had this record or one like it.

        Raises:
            FatalError: the dead-letter limits are passed; nothing was written.
            UnavailableError: the database is down.
        """
        ...


class DeadLetterLimits(Protocol):
    """The limits `save_dead_letter` keeps, for a starting worker and its operator. Needed by `app`, `cli`."""

    async def check_dead_letter_limits(self) -> None:
        """For the start of a worker: a restart does not reset the limits.

        Raises:
            FatalError: they are reached; only `resume` lets dead letters be written again.
            UnavailableError: the database is down.
        """
        ...

    async def resume(self, reason: str) -> None:
        """An operator's word that the cause is mended: the limits count anew from here."""
        ...


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A stored message awaiting publication."""

    outbox_id: int
    message: OutboundMessage


class OutboxStore(Protocol):
    """Messages stored with what they announce. Needed by `relay`."""

    def claim(self, rows_max: int) -> AbstractAsyncContextManager[Sequence[OutboxRow]]:
        """Lock up to `rows_max` rows no other relay holds, oldest first, never two of one key at a time.

        Leaving the context normally deletes them; leaving it by an exception gives them back untouched.
        """
        ...

    async def pending(self) -> int:
        """Rows not yet published."""
        ...


class WorkerPlace(Protocol):
    """A worker's static membership of its group, if it has one. Needed by `app`."""

    async def take(self) -> None:
        """From now on it is ours: an older worker that still holds it leaves at its next check.

        Raises:
            UnavailableError: the database is down.
        """
        ...

    async def check(self) -> None:
        """Whether it is still ours.

        Raises:
            FatalError: another worker has taken it; this one must stop.
            UnavailableError: the database is down; nobody can have taken it meanwhile.
        """
        ...


class Publisher(Protocol):
    """Writes records to Kafka. Needed by `relay`."""

    async def publish(self, messages: Sequence[OutboundMessage]) -> None:
        """Returns when every message is acknowledged by all in-sync replicas.

        Raises:
            UnavailableError: some may not be; publish all of them again.
            FatalError: the broker refuses them for good (no rights, no topic, too large).
        """
        ...
