"""What the call journal keeps of texts once an answer is settled."""

import asyncpg
import pytest

from tests.support import calls
from tests.support.journals import FAULTS, close_all, open_all, save, settled
from worker.adapters.postgres.journal import PostgresCallJournal, open_call_journal
from worker.adapters.postgres.store import PostgresStore, open_store
from worker.core.model import Usage
from worker.settings import Settings, TextStorage

pytestmark = pytest.mark.postgres


async def test_where_texts_are_not_kept_a_settled_answer_leaves_the_hashes_of_its_responses(
    settings: Settings, journal: PostgresCallJournal, sql: asyncpg.Connection
) -> None:
    hashing = settings.model_copy(update={"store_text": TextStorage.HASH})
    one, two = calls.intent("one"), calls.intent("two", answer_id="a-2")
    await open_all(journal, [one, two])
    await close_all(journal, [(one.call_id, calls.complete("secret")), (two.call_id, calls.complete("of another"))])
    before = await journal.usage_of(one.answer_key)
    async with open_store(hashing, code_version="test") as store:
        await save(store, settled("a-1", before))
    rows = await sql.fetch(
        "SELECT answer_id, response, response_hash = sha256('secret') AS h FROM llm_calls ORDER BY 1"
    )
    assert [tuple(row) for row in rows] == [("a-1", None, True), ("a-2", b"of another", None)]
    assert await journal.usage_of(one.answer_key) == before
    assert await journal.responses(one.call_key) == []
    assert await sql.fetch(FAULTS) == []


async def test_where_texts_are_not_kept_a_response_that_came_after_the_settlement_is_swept(
    settings: Settings, sql: asyncpg.Connection
) -> None:
    hashing = settings.model_copy(update={"store_text": TextStorage.HASH})
    late, unsettled = calls.intent("late"), calls.intent("unsettled", answer_id="a-2")
    async with (
        open_store(hashing, code_version="test") as store,
        open_call_journal(store.database, TextStorage.HASH) as journal,
    ):
        await open_all(journal, [late, unsettled])
        await save(store, settled("a-1", Usage()))
        ends = [(late.call_id, calls.complete("secret")), (unsettled.call_id, calls.complete("needed"))]
        await close_all(journal, ends)
        await journal.sweep()
    rows = await sql.fetch("SELECT answer_id, response FROM llm_calls ORDER BY 1")
    assert [tuple(row) for row in rows] == [("a-1", None), ("a-2", b"needed")]


async def test_where_texts_are_kept_responses_stay(
    store: PostgresStore, journal: PostgresCallJournal, sql: asyncpg.Connection
) -> None:
    intent = calls.intent()
    await journal.open(intent)
    await journal.close(intent.call_id, calls.complete("kept"))
    await save(store, settled("a-1", await journal.usage_of(intent.answer_key)))
    await journal.sweep()
    assert await sql.fetchval("SELECT response FROM llm_calls") == b"kept"
