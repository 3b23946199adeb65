"""`DeadLetterStore` on PostgreSQL, with the limits that stop a bad deploy: counted from the tables, so they last."""

import hashlib

from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres.database import Database
from worker.adapters.postgres.dead_letter_positions import lock_alone
from worker.adapters.postgres.group_commit import find_settled
from worker.adapters.postgres.headers import encode_headers
from worker.adapters.postgres.limits import RecentOutcomes, refusal
from worker.adapters.postgres.recent_outcomes import recent_outcomes
from worker.adapters.postgres.tables import dead_letters, intake_resumes, outbox
from worker.adapters.postgres.text import scrubbed
from worker.core.model import AnswerIdentity
from worker.core.outcome import Outcome
from worker.core.records import OutboundMessage
from worker.errors import FatalError, RetryableError
from worker.ports import DeadLetter
from worker.settings import DeadLetterSettings

COPY_OF_TOO_LARGE_BYTES = 65_536
"""What is kept of a value larger than `copy_bytes_max`."""


class PostgresDeadLetterStore:
    """See `DeadLetterStore` and `DeadLetterLimits`; everything is counted per answers topic."""

    def __init__(self, database: Database, settings: DeadLetterSettings, *, topic: str, code_version: str) -> None:
        self._database = database
        self._settings = settings
        self._topic = topic
        self._code_version = code_version

    async def save_dead_letter(self, dead_letter: DeadLetter, message: OutboundMessage) -> Outcome:
        async def write(connection: AsyncConnection) -> Outcome | str:
            # One at a time, over all workers: two that count together would both pass the limit.
            await lock_alone(connection, self._topic)
            row = self._row(dead_letter)
            if await _is_stored(connection, row):
                return Outcome.DEAD_LETTER
            if await _is_settled(connection, dead_letter.identity):
                return Outcome.DUPLICATE
            reason = refusal(await self._recent(connection), self._settings)
            if reason is not None:
                return reason
            await connection.execute(insert(dead_letters).values(row))
            await connection.execute(insert(outbox).values(_outbox_row(message)))
            return Outcome.DEAD_LETTER

        try:
            outcome = await self._database.run(write)
        except RetryableError as error:
            record = dead_letter.record
            where = f"{record.topic} partition {record.partition} offset {record.offset}"
            raise FatalError(f"the dead letter of {where} cannot be stored: {error}") from error
        if not isinstance(outcome, Outcome):
            raise FatalError(outcome)
        return outcome

    async def check_dead_letter_limits(self) -> None:
        reason = refusal(await self._database.run(self._recent), self._settings)
        if reason is not None:
            raise FatalError(reason)

    async def resume(self, reason: str) -> None:
        row = {"topic": self._topic, "reason": scrubbed(reason), "resumed_by": func.current_user()}

        async def write(connection: AsyncConnection) -> None:
            await connection.execute(insert(intake_resumes).values(row))

        await self._database.run(write)

    async def _recent(self, connection: AsyncConnection) -> RecentOutcomes:
        return await recent_outcomes(connection, self._topic, self._settings)

    def _row(self, dead_letter: DeadLetter) -> dict[str, object]:
        record, key = dead_letter.record, dead_letter.identity.key
        value = record.value
        too_large = value is not None and len(value) > self._settings.copy_bytes_max
        return {
            "topic": record.topic,
            "partition": record.partition,
            "record_offset": record.offset,
            "value_hash": hashlib.sha256(value or b"").digest(),
            "record_timestamp_ms": record.timestamp_ms,
            "key": record.key,
            "value": value[:COPY_OF_TOO_LARGE_BYTES] if value is not None and too_large else value,
            "value_size_bytes": len(value or b""),
            "headers": encode_headers(record.headers),
            "reason": dead_letter.reason.value,
            "detail": scrubbed(dead_letter.detail),
            "attempts": dead_letter.attempts,
            "tenant": None if key is None else scrubbed(key.tenant),
            "answer_id": None if key is None else scrubbed(key.answer_id),
            "code_version": self._code_version,
        }


async def _is_stored(connection: AsyncConnection, row: dict[str, object]) -> bool:
    identity = ("topic", "partition", "record_offset", "value_hash")
    same = select(dead_letters.c.dead_letter_id).where(*(dead_letters.c[name] == row[name] for name in identity))
    return (await connection.execute(same)).first() is not None


async def _is_settled(connection: AsyncConnection, identity: AnswerIdentity) -> bool:
    if identity.key is None or identity.content_hash is None:
        return False
    settled = (await find_settled(connection, [identity.key])).get(identity.key)
    return settled is not None and settled.content_hash == identity.content_hash


def _outbox_row(message: OutboundMessage) -> dict[str, object]:
    return {
        "topic": message.topic,
        "key": message.key,
        "value": message.value,
        "headers": encode_headers(message.headers),
    }
