"""What is forgotten of answers settled long ago, and what must not be."""

import asyncpg
import pytest

from tests.support import samples
from tests.support.attributions import attribution_of, message_of
from worker.adapters.postgres.forgetting import ROWS_PER_TRANSACTION, forget_answers
from worker.adapters.postgres.migrate import migrate_database
from worker.adapters.postgres.store import PostgresStore
from worker.ports import SaveResult

pytestmark = pytest.mark.postgres

LETTER = """
    INSERT INTO dead_letters (topic, partition, record_offset, value_hash, record_timestamp_ms, value_size_bytes,
        headers, reason, detail, attempts, tenant, answer_id, code_version)
    VALUES ('answers', 0, 1, sha256(''), 0, 0, '', 'conflicting_content', '', 1, 'default', $1, '1')
"""


async def settle_long_ago(store: PostgresStore, sql: asyncpg.Connection, *answer_ids: str) -> None:
    """Settled three years ago; the attributions have gone with their partitions since."""
    for answer_id in answer_ids:
        attribution = attribution_of(samples.answer(answer_id))
        assert await store.save(attribution, message_of(attribution)) is SaveResult.SAVED
    await sql.execute("UPDATE answers SET settled_at = now() - interval '3 years'")
    await sql.execute("DELETE FROM attributions")


async def remembered(sql: asyncpg.Connection) -> set[str]:
    return {row["answer_id"] for row in await sql.fetch("SELECT answer_id FROM answers")}


async def test_answers_past_their_retention_are_forgotten_batch_by_batch_in_every_topic(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    await settle_long_ago(store, sql, "a-1", "a-2")
    await sql.execute(
        "INSERT INTO answers SELECT tenant, 'b-' || i, 'another', content_hash, 1, settled_at "
        "FROM answers, generate_series(1, $1) i WHERE answer_id = 'a-1'",
        ROWS_PER_TRANSACTION + 1,
    )
    assert await forget_answers(store.database.engine, retention_months=24) == ROWS_PER_TRANSACTION + 3
    assert await remembered(sql) == set()


async def test_answers_within_their_retention_are_kept(store: PostgresStore, sql: asyncpg.Connection) -> None:
    await settle_long_ago(store, sql, "a-1")
    assert await forget_answers(store.database.engine, retention_months=37) == 0
    assert await remembered(sql) == {"a-1"}


async def test_an_answer_is_kept_as_long_as_an_attribution_of_it(store: PostgresStore, sql: asyncpg.Connection) -> None:
    await settle_long_ago(store, sql, "a-1")
    later = attribution_of(samples.answer("a-2"))
    await store.save(later, message_of(later))
    await sql.execute("UPDATE answers SET settled_at = now() - interval '3 years'")
    assert await forget_answers(store.database.engine, retention_months=24) == 1
    assert await remembered(sql) == {"a-2"}


async def test_an_answer_is_kept_while_a_dead_letter_of_it_may_be_replayed(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    await settle_long_ago(store, sql, "a-1", "a-2")
    await sql.execute(LETTER, "a-2")
    assert await forget_answers(store.database.engine, retention_months=24) == 1
    assert await remembered(sql) == {"a-2"}
    await sql.execute("UPDATE dead_letters SET state = 'discarded', resolved_at = now()")
    assert await forget_answers(store.database.engine, retention_months=24) == 1


@pytest.mark.parametrize(("retention_months", "left"), [(None, {"a-1"}), (24, set())])
async def test_migrate_forgets_when_it_is_told_to_and_never_else(
    store: PostgresStore, sql: asyncpg.Connection, retention_months: int | None, left: set[str]
) -> None:
    await settle_long_ago(store, sql, "a-1")
    settings = store.database.settings
    await migrate_database(settings.model_copy(update={"answers_retention_months": retention_months}))
    assert await remembered(sql) == left
