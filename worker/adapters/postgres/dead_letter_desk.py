"""What an operator does with dead letters: look at them, replay them, discard them. None leaves the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ARRAY, BigInteger, ColumnElement, Update, any_, func, insert, literal, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from schemas.dead_letter import REPLAYS_MAX, DeadLetterReason
from worker.adapters.postgres.database import Database
from worker.adapters.postgres.headers import decode_headers, encode_headers
from worker.adapters.postgres.tables import dead_letters, outbox
from worker.adapters.postgres.tables.queues import DeadLetterState
from worker.adapters.postgres.text import scrubbed
from worker.codec.replays import replayed_headers, replays_of
from worker.core.records import Record

IS_OPEN = dead_letters.c.state == DeadLetterState.OPEN.value


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Which dead letters are meant: all for which everything that is set holds; `since` ≤ created < `until`."""

    ids: tuple[int, ...] = ()
    reason: DeadLetterReason | None = None
    tenant: str | None = None
    answer_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    state: DeadLetterState | None = None

    def condition(self) -> ColumnElement[bool]:
        column = dead_letters.c
        equal = {
            column.reason: self.reason,
            column.tenant: None if self.tenant is None else scrubbed(self.tenant),
            column.answer_id: None if self.answer_id is None else scrubbed(self.answer_id),
            column.topic: self.topic,
            column.partition: self.partition,
            column.record_offset: self.offset,
            column.state: self.state,
        }
        condition: ColumnElement[bool] = true()
        for of, value in equal.items():
            if value is not None:
                condition &= of == value
        if self.ids:
            condition &= column.dead_letter_id == any_(literal(list(self.ids), ARRAY(BigInteger)))
        if self.since is not None:
            condition &= column.created_at >= self.since
        if self.until is not None:
            condition &= column.created_at < self.until
        return condition


@dataclass(frozen=True, slots=True)
class StoredDeadLetter:
    """What is known of a record set aside, without its bytes."""

    dead_letter_id: int
    topic: str
    partition: int
    offset: int
    reason: DeadLetterReason
    detail: str
    attempts: int
    tenant: str | None
    answer_id: str | None
    value_hash: bytes
    value_size_bytes: int
    truncated: bool
    code_version: str
    created_at: datetime
    state: DeadLetterState
    resolved_at: datetime | None
    resolution_note: str | None


class Resolution(StrEnum):
    """What became of the wish to replay a dead letter."""

    REPLAYED = "replayed"
    NOT_OPEN = "not_open"
    TRUNCATED = "truncated"
    REPLAYED_TOO_OFTEN = "replayed_too_often"


_kept_bytes = func.coalesce(func.octet_length(dead_letters.c.value), 0)
TRUNCATED = (_kept_bytes < dead_letters.c.value_size_bytes).label("truncated")
DESCRIPTION = [
    TRUNCATED if name == "truncated" else dead_letters.c["record_offset" if name == "offset" else name]
    for name in StoredDeadLetter.__dataclass_fields__
]
BYTES = [dead_letters.c[name] for name in ("key", "value", "headers", "record_timestamp_ms")]


class DeadLetterDesk:
    """Every change of state is one transaction with all that it means."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, wanted: DeadLetterFilter, *, rows_max: int) -> Sequence[StoredDeadLetter]:
        """The newest that are meant, newest first."""
        newest = dead_letters.c.dead_letter_id.desc()
        query = select(*DESCRIPTION).where(wanted.condition()).order_by(newest).limit(rows_max)

        async def work(connection: AsyncConnection) -> Sequence[StoredDeadLetter]:
            return [_stored(row) for row in await connection.execute(query)]

        return await self._database.run(work)

    async def count(self, wanted: DeadLetterFilter) -> int:
        async def work(connection: AsyncConnection) -> int:
            query = select(func.count()).select_from(dead_letters).where(wanted.condition())
            return (await connection.execute(query)).scalar_one()

        return await self._database.run(work)

    async def read(self, dead_letter_id: int) -> tuple[StoredDeadLetter, Record] | None:
        """With the record as it is kept: its beginning only where it is truncated."""
        query = select(*DESCRIPTION, *BYTES).where(dead_letters.c.dead_letter_id == dead_letter_id)

        async def work(connection: AsyncConnection) -> tuple[StoredDeadLetter, Record] | None:
            row = (await connection.execute(query)).first()
            if row is None:
                return None
            stored = _stored(row[: len(DESCRIPTION)])
            return stored, _record(stored, *row[len(DESCRIPTION) :])

        return await self._database.run(work)

    async def open_ids(self, wanted: DeadLetterFilter) -> Sequence[int]:
        """Those of the meant ones that nobody has replayed or discarded, oldest first, as it is now.

        A replay that fails again is a new dead letter, and not one of these.
        """
        query = (
            select(dead_letters.c.dead_letter_id)
            .where(wanted.condition(), IS_OPEN)
            .order_by(dead_letters.c.dead_letter_id)
        )

        async def work(connection: AsyncConnection) -> Sequence[int]:
            return list((await connection.execute(query)).scalars())

        return await self._database.run(work)

    async def replay(self, dead_letter_id: int, *, to_topic: str, note: str | None) -> Resolution:
        """The original bytes as a new record in the outbox, and the letter `replayed`, in one transaction.

        Done again, as after a commit of unknown outcome, it finds the letter no longer open and writes nothing.
        """

        async def work(connection: AsyncConnection) -> Resolution:
            row = await _lock_open(connection, dead_letter_id)
            if row is None:
                return Resolution.NOT_OPEN
            truncated, key, value, encoded, _ = row
            headers = decode_headers(encoded)
            if truncated:
                return Resolution.TRUNCATED
            if replays_of(headers) >= REPLAYS_MAX:
                return Resolution.REPLAYED_TOO_OFTEN
            again = {
                "topic": to_topic,
                "key": key,
                "value": value,
                "headers": encode_headers(replayed_headers(headers)),
            }
            await connection.execute(insert(outbox).values(again))
            told = note or f"replay {replays_of(headers) + 1}"
            here = dead_letters.c.dead_letter_id == dead_letter_id
            await connection.execute(_resolution(DeadLetterState.REPLAYED, told).where(here))
            return Resolution.REPLAYED

        return await self._database.run(work)

    async def discard(self, wanted: DeadLetterFilter, *, note: str) -> int:
        """Close what is open of the meant ones, with the operator's word; returns how many. Their rows stay."""
        statement = _resolution(DeadLetterState.DISCARDED, note).where(wanted.condition(), IS_OPEN)

        async def work(connection: AsyncConnection) -> int:
            return (await connection.execute(statement)).rowcount

        return await self._database.run(work)


async def _lock_open(connection: AsyncConnection, dead_letter_id: int) -> Sequence[Any] | None:
    query = select(TRUNCATED, *BYTES).where(dead_letters.c.dead_letter_id == dead_letter_id, IS_OPEN)
    return (await connection.execute(query.with_for_update())).first()


def _resolution(state: DeadLetterState, note: str) -> Update:
    changes = {"state": state.value, "resolved_at": func.clock_timestamp(), "resolution_note": scrubbed(note)}
    return update(dead_letters).values(changes)


def _stored(row: Sequence[Any]) -> StoredDeadLetter:
    values = dict(zip(StoredDeadLetter.__dataclass_fields__, row, strict=True))
    values |= {"reason": DeadLetterReason(values["reason"]), "state": DeadLetterState(values["state"])}
    return StoredDeadLetter(**values)


def _record(
    stored: StoredDeadLetter, key: bytes | None, value: bytes | None, headers: bytes, timestamp_ms: int
) -> Record:
    return Record(
        topic=stored.topic,
        partition=stored.partition,
        offset=stored.offset,
        timestamp_ms=timestamp_ms,
        key=key,
        value=value,
        headers=decode_headers(headers),
    )
