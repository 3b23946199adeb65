"""`CallJournal` on PostgreSQL: an intent before each call, its end after it, each durable before anybody goes on.

`llm_calls` is partitioned, so that it cannot say that a key has one live intent; `llm_call_claims` says it. An intent
and its claim come together and go together: whoever takes over an expired claim turns its intent to `unknown`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres import journal_statements as statements
from worker.adapters.postgres.bulk import arrays_of
from worker.adapters.postgres.coalescer import Flush, coalescing
from worker.adapters.postgres.database import Database
from worker.adapters.postgres.journal_rows import (
    GIVEN_ANSWER_KEY_COLUMNS,
    GIVEN_CALL_COLUMNS,
    close_arrays,
    intent_arrays,
    journaled_call,
    usage_of_row,
)
from worker.core.model import AnswerKey, Usage
from worker.errors import FatalError, RetryableError, WorkerError
from worker.llm_ports import CallIntent, CallResult, JournaledCall
from worker.settings import TextStorage

Item = TypeVar("Item")
Result = TypeVar("Result")
Close = tuple[UUID, CallResult]

SWEEP_ROWS = 1_000
"""Abandoned calls marked in one transaction."""

RESPONSE_BYTES_PER_STATEMENT = 8 * 2**20
"""A statement holds its parameters twice, encoded and not."""


class PostgresCallJournal:
    """See `CallJournal`; made by `open_call_journal`."""

    def __init__(
        self,
        database: Database,
        texts: TextStorage,
        *,
        responses: Callable[[bytes], Awaitable[Sequence[JournaledCall]]],
        open_: Callable[[CallIntent], Awaitable[float | None]],
        close: Callable[[Close], Awaitable[None]],
        usage_of: Callable[[AnswerKey], Awaitable[Usage]],
    ) -> None:
        self._database = database
        self._texts = texts
        self._responses = responses
        self._open = open_
        self._close = close
        self._usage_of = usage_of

    async def responses(self, call_key: bytes) -> Sequence[JournaledCall]:
        return await self._responses(call_key)

    async def open(self, intent: CallIntent) -> float | None:
        return await self._open(intent)

    async def close(self, call_id: UUID, result: CallResult) -> None:
        await self._close((call_id, result))

    async def usage_of(self, key: AnswerKey) -> Usage:
        return await self._usage_of(key)

    async def sweep(self) -> int:
        """For the start and once a day: what dead workers left behind becomes `unknown`; returns how many calls did.

        Where texts are not kept, responses that came after their answer was settled are erased too.
        """
        swept = 0
        while True:
            marked = await self._database.run(_mark_abandoned)
            swept += marked
            if marked < SWEEP_ROWS:
                break
        if self._texts is TextStorage.HASH:
            await self._database.run(_erase_late)
        return swept


@asynccontextmanager
async def open_call_journal(database: Database, texts: TextStorage) -> AsyncIterator[PostgresCallJournal]:
    """A journal that works as long as the context; leaving it finishes what was submitted.

    Enter and leave it in one task, as any TaskGroup.
    """
    batches = Batches(database)
    settings = database.settings
    async with AsyncExitStack() as stack:

        async def together(flush: Flush[Item, Result]) -> Callable[[Item], Awaitable[Result]]:
            return await stack.enter_async_context(
                coalescing(flush, batch_max=settings.save_batch_max, timeout_s=settings.save_timeout_s, flushers=1)
            )

        yield PostgresCallJournal(
            database,
            texts,
            responses=await together(batches.responses),
            open_=await together(culprits_apart(batches.open)),
            close=await together(culprits_apart(batches.close)),
            usage_of=await together(batches.usage_of),
        )


class Batches:
    """What a flush does: one transaction each."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self, intents: Sequence[CallIntent]) -> Sequence[float | Exception | None]:
        age_days_max = self._database.settings.responses_age_days_max
        return await self._database.run(lambda connection: _open(connection, intents, age_days_max))

    async def close(self, closes: Sequence[Close]) -> Sequence[Exception | None]:
        return await self._database.run(lambda connection: _close(connection, closes))

    async def responses(self, call_keys: Sequence[bytes]) -> Sequence[Sequence[JournaledCall]]:
        async def work(connection: AsyncConnection) -> dict[bytes, list[JournaledCall]]:
            found: dict[bytes, list[JournaledCall]] = {key: [] for key in call_keys}
            await connection.execute(statements.PLAN_ONCE)
            young = {"call_keys": sorted(found), "age_days_max": self._database.settings.responses_age_days_max}
            for row in await connection.execute(statements.RESPONSES, young):
                found[row.call_key].append(journaled_call(row))
            return found

        found = await self._database.run(work)
        return [found[key] for key in call_keys]

    async def usage_of(self, keys: Sequence[AnswerKey]) -> Sequence[Usage]:
        wanted = arrays_of(statements.ANSWER_KEY_COLUMNS, [(key.tenant, key.answer_id) for key in sorted(set(keys))])

        async def work(connection: AsyncConnection) -> dict[tuple[str, str], Usage]:
            await connection.execute(statements.PLAN_ONCE)
            rows = await connection.execute(statements.USAGE, wanted)
            return {(row.tenant, row.answer_id): usage_of_row(row) for row in rows}

        found = await self._database.run(work)
        return [found.get((key.tenant, key.answer_id), Usage()) for key in keys]


def culprits_apart(flush: Flush[Item, Result]) -> Flush[Item, Result]:
    """The same, but after a refused value one by one, so that only the culprit fails."""

    async def alone(item: Item) -> Result | Exception:
        try:
            return (await flush([item]))[0]
        except WorkerError as error:
            return error

    async def flush_apart(items: Sequence[Item]) -> Sequence[Result | Exception]:
        try:
            return await flush(items)
        except RetryableError as error:
            if len(items) == 1:
                return [error]
        return [await alone(item) for item in items]

    return flush_apart


async def _open(
    connection: AsyncConnection, intents: Sequence[CallIntent], age_days_max: int
) -> Sequence[float | None]:
    candidates: dict[bytes, CallIntent] = {}
    for intent in intents:
        candidates.setdefault(intent.call_key, intent)
    # In one order everywhere, down to the wire: two batches that share keys in two orders would deadlock.
    wanted = intent_arrays([candidates[key] for key in sorted(candidates)])
    claimed = (await connection.execute(statements.CLAIM, wanted)).all()
    taken_over = [row.call_key for row in claimed if not row.is_new]
    if taken_over:
        await connection.execute(statements.GIVE_UP_BY_KEY, {"call_keys": taken_over})
    winners = [candidates[row.call_key] for row in claimed]
    answered = await _answered_since(connection, winners, age_days_max)
    if answered:
        await connection.execute(statements.DELETE_CLAIMS_OF_CALLS, {"call_ids": [i.call_id for i in answered]})
        winners = [intent for intent in winners if intent not in answered]
    if winners:
        await connection.execute(statements.INSERT_INTENTS, intent_arrays(winners))
    if len(winners) == len(intents):
        return [None] * len(intents)
    return await _waits(connection, intents)


async def _answered_since(
    connection: AsyncConnection, winners: Sequence[CallIntent], age_days_max: int
) -> Sequence[CallIntent]:
    """Those whose request got a response after they had looked. Asked under the claim: whoever held it has ended."""
    looked = {intent.call_key: intent.responses_known for intent in winners if intent.responses_known is not None}
    if not looked:
        return []
    await connection.execute(statements.PLAN_ONCE)
    young = {"call_keys": sorted(looked), "age_days_max": age_days_max}
    rows = await connection.execute(statements.RESPONSE_COUNTS, young)
    more = {row.call_key for row in rows if row.responses > looked[row.call_key]}
    return [intent for intent in winners if intent.call_key in more]


async def _waits(connection: AsyncConnection, intents: Sequence[CallIntent]) -> Sequence[float | None]:
    """For each intent None when the claim is its own, else the seconds that the claim's owner has left."""
    rows = await connection.execute(statements.HOLDERS, {"call_keys": sorted({i.call_key for i in intents})})
    holders = {row.call_key: (row.call_id, float(row.left_s)) for row in rows}
    # A holder that is gone by now has ended: nothing to wait for, but a response to look for.
    met = [(intent.call_id, *holders.get(intent.call_key, (None, 0.0))) for intent in intents]
    return [None if call_id == holder else left_s for call_id, holder, left_s in met]


async def _close(connection: AsyncConnection, closes: Sequence[Close]) -> Sequence[Exception | None]:
    results = dict(closes)
    claims = await connection.execute(statements.LOCK_CLAIMS_OF_CALLS, {"call_ids": list(results)})
    started_at = {row.call_id: row.started_at for row in claims}
    await connection.execute(statements.DELETE_CLAIMS_OF_CALLS, {"call_ids": list(results)})
    known: set[UUID] = set()
    for part in _parts([(call_id, result) for call_id, result in results.items() if call_id in started_at]):
        at = [started_at[call_id] for call_id, _ in part]
        ends = {**close_arrays(part), "first_at": min(at), "last_at": max(at)}
        known.update((await connection.execute(statements.CLOSE, ends)).scalars())
    # Whose claim has expired and was taken over.
    for part in _parts([(call_id, result) for call_id, result in results.items() if call_id not in started_at]):
        known.update((await connection.execute(statements.CLOSE_OLD, close_arrays(part))).scalars())
    missed = [call_id for call_id in results if call_id not in known]
    if missed:
        known.update((await connection.execute(statements.KNOWN_CALLS, {"call_ids": missed})).scalars())
    return [
        None if call_id in known else FatalError(f"the LLM call {call_id} ended, and no intent of it is on record")
        for call_id, _ in closes
    ]


def _parts(closes: Sequence[Close]) -> Iterator[Sequence[Close]]:
    """Statements of bounded size; a response larger than that goes alone."""
    part: list[Close] = []
    size = 0
    for close in closes:
        length = len(close[1].raw or "")
        if part and size + length > RESPONSE_BYTES_PER_STATEMENT:
            yield part
            part, size = [], 0
        part.append(close)
        size += length
    if part:
        yield part


async def _mark_abandoned(connection: AsyncConnection) -> int:
    expired = (await connection.execute(statements.DELETE_EXPIRED_CLAIMS, {"rows_max": SWEEP_ROWS})).all()
    if expired:
        wanted = arrays_of(GIVEN_CALL_COLUMNS, [tuple(row) for row in expired])
        await connection.execute(statements.GIVE_UP, wanted)
    return len(expired)


async def _erase_late(connection: AsyncConnection) -> None:
    await connection.execute(statements.ERASE_LATE)


async def erase_responses(connection: AsyncConnection, keys: Sequence[AnswerKey]) -> None:
    """Leave of the responses to calls for these answers their hashes alone."""
    if keys:
        wanted = arrays_of(GIVEN_ANSWER_KEY_COLUMNS, [(key.tenant, key.answer_id) for key in keys])
        await connection.execute(statements.ERASE_OF_ANSWERS, wanted)
