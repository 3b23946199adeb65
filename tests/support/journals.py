"""The call journal on PostgreSQL as tests use it: many calls at once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

from tests.support import calls, samples
from tests.support.attributions import attribution_of, message_of
from worker.adapters.postgres.database import open_database
from worker.adapters.postgres.journal import PostgresCallJournal, open_call_journal
from worker.adapters.postgres.store import PostgresStore
from worker.core.model import Attribution, Usage
from worker.errors import RetryableError, UnavailableError
from worker.llm_ports import CallIntent, CallResult
from worker.settings import PostgresSettings, TextStorage

FAULTS = "SELECT fault FROM llm_call_faults ORDER BY fault"
EXPIRE = "UPDATE llm_call_claims SET expires_at = now() - interval '1 second'"


@asynccontextmanager
async def open_journal(
    settings: PostgresSettings, texts: TextStorage = TextStorage.FULL
) -> AsyncIterator[PostgresCallJournal]:
    async with open_database(settings) as database, open_call_journal(database, texts) as journal:
        yield journal


async def open_all(journal: PostgresCallJournal, intents: Sequence[CallIntent]) -> list[float | None]:
    async with asyncio.TaskGroup() as tasks:
        opening = [tasks.create_task(journal.open(intent)) for intent in intents]
    return [task.result() for task in opening]


async def close_all(journal: PostgresCallJournal, ends: Sequence[tuple[UUID, CallResult]]) -> list[Exception | None]:
    async def close(call_id: UUID, result: CallResult) -> Exception | None:
        try:
            await journal.close(call_id, result)
        except (RetryableError, UnavailableError) as error:
            return error
        return None

    async with asyncio.TaskGroup() as tasks:
        closing = [tasks.create_task(close(*end)) for end in ends]
    return [task.result() for task in closing]


def intents(count: int) -> list[CallIntent]:
    return [calls.intent(f"request {index}", answer_id=f"a-{index}") for index in range(count)]


def settled(answer_id: str, usage: Usage) -> Attribution:
    """What is stored of an answer whose calls used so much."""
    judgement = replace(samples.judgement(), usage=usage)
    return attribution_of(samples.answer(answer_id), judgement)


async def save(store: PostgresStore, attribution: Attribution) -> None:
    await store.save(attribution, message_of(attribution))
