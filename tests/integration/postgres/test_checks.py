"""The database itself refuses what may never hold, whoever writes it."""

import asyncpg
import pytest

from schemas.dead_letter import DeadLetterReason
from tests.support import samples
from tests.support.attributions import attribution_of, message_of
from worker.adapters.postgres.store import PostgresStore
from worker.ports import DeadLetter

pytestmark = pytest.mark.postgres

REFUSED = [
    "UPDATE source_attributions SET credit_units = 1000000000001",
    "UPDATE source_attributions SET share_units = -1",
    "UPDATE source_attributions SET plain_credit_units = -1",
    "UPDATE source_attributions SET plain_share_units = 1000000000001",
    "UPDATE source_attributions SET position = -1",
    "UPDATE attributions SET utility_units = utility_units - 1",
    "UPDATE attributions SET utility_units = -1, residual_units = 1000000000001",
    "UPDATE attributions SET status = 'paid'",
    "UPDATE attributions SET status = 'ungrounded'",
    "UPDATE attributions SET ungrounded_key_point_count = key_point_count + 1",
    "UPDATE attributions SET source_count = -1",
    "UPDATE attributions SET input_tokens = -1",
    "UPDATE attributions SET cost_usd = 'NaN'",
    "UPDATE attributions SET cost_usd = -0.01",
    "UPDATE attributions SET reward_amount = 'NaN', reward_currency = 'EUR'",
    "UPDATE attributions SET reward_amount = 'Infinity', reward_currency = 'EUR'",
    "UPDATE attributions SET reward_amount = 1",
    "UPDATE attributions SET supersedes_revision = 1",
    "UPDATE attributions SET revision = 0",
    "UPDATE attributions SET method_hash = '\\x00'",
    "UPDATE answers SET content_hash = '\\x00'",
    "UPDATE answers SET revision = 0",
    "INSERT INTO intake_resumes (topic, reason, resumed_by) VALUES ('answers', '', 'me')",
    "INSERT INTO methods (method_hash, document) VALUES ('\\x00', '{}')",
    "UPDATE dead_letters SET reason = 'bored'",
    "UPDATE dead_letters SET state = 'replayed'",
    "UPDATE dead_letters SET state = 'lost', resolved_at = now()",
    "UPDATE dead_letters SET attempts = -1",
    "UPDATE dead_letters SET value_hash = '\\x00'",
    "UPDATE llm_calls SET outcome = 'guessed'",
    "UPDATE llm_calls SET call_key = '\\x00'",
    "UPDATE llm_calls SET cost_usd = 'NaN'",
    "UPDATE llm_calls SET reserved_cost_usd = -1",
    "UPDATE llm_calls SET output_price_usd = 'NaN'",
    "UPDATE llm_calls SET output_tokens = -1",
]

CALL = (
    "INSERT INTO llm_calls "
    "(call_id, call_key, tenant, answer_id, stage, provider, model, deadline_at, outcome, finished_at) "
    "VALUES (gen_random_uuid(), sha256(''), 'default', 'a-1', 'score', 'p', 'm', now(), 'complete', now())"
)


async def store_one_of_each(store: PostgresStore, sql: asyncpg.Connection) -> None:
    attribution = attribution_of(samples.answer())
    await store.save(attribution, message_of(attribution))
    letter = DeadLetter(samples.record(), DeadLetterReason.NOT_JSON, "not JSON", attempts=1)
    await store.save_dead_letter(letter, message_of(attribution))
    await sql.execute(CALL)


@pytest.mark.parametrize("statement", REFUSED)
async def test_a_check_refuses(store: PostgresStore, sql: asyncpg.Connection, statement: str) -> None:
    await store_one_of_each(store, sql)
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await sql.execute(statement)
    assert refused.value.constraint_name


async def test_an_answer_cannot_have_two_live_attributions(store: PostgresStore, sql: asyncpg.Connection) -> None:
    await store_one_of_each(store, sql)
    with pytest.raises(asyncpg.UniqueViolationError):
        await sql.execute(
            "INSERT INTO answers SELECT tenant, answer_id, 'elsewhere', sha256('x'), 2, now() FROM answers"
        )
