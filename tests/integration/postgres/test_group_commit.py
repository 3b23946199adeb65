"""Concurrent saves, and everything that can go wrong around a commit."""

import asyncio
import random
import traceback
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Self

import asyncpg
import pytest
from pydantic import SecretStr
from sqlalchemy import event

from tests.support import samples
from tests.support.attributions import attribution_of, message_of
from tests.support.conditions import until, until_equal
from tests.support.cutting_proxy import CuttingProxy
from worker.adapters.postgres.store import PostgresStore, open_store
from worker.core.model import Attribution
from worker.errors import RetryableError, UnavailableError
from worker.ports import SaveResult
from worker.settings import PostgresSettings, Settings

pytestmark = pytest.mark.postgres

HELD_UP = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
ROWS = {
    "answers": "SELECT count(*) FROM answers",
    "attributions": "SELECT count(*) FROM attributions",
    "sources": "SELECT count(*) FROM source_attributions",
    "outbox": "SELECT count(*) FROM outbox",
}


def attributions(count: int) -> list[Attribution]:
    return [attribution_of(samples.answer(f"a-{index:03}")) for index in range(count)]


async def save(store: PostgresStore, attribution: Attribution) -> SaveResult | Exception:
    try:
        return await store.save(attribution, message_of(attribution))
    except (RetryableError, UnavailableError) as error:
        return error


async def save_all(store: PostgresStore, given: list[Attribution]) -> list[SaveResult | Exception]:
    async with asyncio.TaskGroup() as tasks:
        saves = [tasks.create_task(save(store, attribution)) for attribution in given]
    return [task.result() for task in saves]


async def rows(sql: asyncpg.Connection) -> dict[str, int]:
    return {name: await sql.fetchval(query) for name, query in ROWS.items()}


def whole(answers: int) -> dict[str, int]:
    """What the tables hold when so many sample answers are stored, each whole and once."""
    return {"answers": answers, "attributions": answers, "sources": 3 * answers, "outbox": answers}


async def test_saves_submitted_together_share_a_transaction(store: PostgresStore, sql: asyncpg.Connection) -> None:
    assert await save_all(store, attributions(40)) == [SaveResult.SAVED] * 40
    assert await rows(sql) == whole(40)
    assert await sql.fetchval("SELECT count(DISTINCT xmin::text) FROM answers") < 5


async def test_all_rows_of_an_answer_carry_the_same_database_time(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    await save_all(store, attributions(1))
    times = await sql.fetchval(
        "SELECT count(DISTINCT t) FROM (SELECT settled_at t FROM answers UNION ALL SELECT settled_at FROM attributions "
        "UNION ALL SELECT settled_at FROM source_attributions UNION ALL SELECT created_at FROM outbox) times"
    )
    assert times == 1


async def test_stores_that_save_the_same_answers_in_different_orders_save_each_once_and_never_deadlock(
    settings: Settings, sql: asyncpg.Connection
) -> None:
    """orakl PR#2503, basic-memory#1208: batches in arrival order deadlock, with ON CONFLICT DO NOTHING too."""
    given = attributions(60)
    chooser = random.Random(3)
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(settings, code_version="test")) for _ in range(4)]
        async with asyncio.TaskGroup() as tasks:
            runs = [tasks.create_task(save_all(store, chooser.sample(given, len(given)))) for store in stores]
    results = Counter(result for run in runs for result in run.result())
    assert results == {SaveResult.SAVED: 60, SaveResult.DUPLICATE: 180}
    assert await rows(sql) == whole(60)
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert await sql.fetchval(deadlocks) == 0


async def test_keys_are_claimed_in_one_order_down_to_the_wire(store: PostgresStore) -> None:
    """prefect PR#22112: a later grouping had undone the order that prevented deadlocks."""
    claimed: list[list[tuple[str, str]]] = []

    def look(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("INSERT INTO answers"):
            claimed.append(list(zip(parameters[0], parameters[1], strict=True)))

    event.listen(store.database.engine.sync_engine, "before_cursor_execute", look)
    given = [attribution_of(samples.answer(f"a-{i}", tenant=t)) for i in (5, 3, 11, 1) for t in ("b", "a", "B")]
    await save_all(store, given)
    assert sum(map(len, claimed)) == len(given)
    assert claimed == [sorted(keys) for keys in claimed]


async def test_a_row_that_cannot_be_stored_fails_alone(store: PostgresStore, sql: asyncpg.Connection) -> None:
    """litellm PR#33873: one bad row destroyed its whole batch."""
    given = attributions(9)
    sources = given[4].answer.sources
    with_nul = replace(given[4].answer, sources=(replace(sources[0], url="http://secret\x00"), *sources[1:]))
    given[4] = replace(given[4], answer=with_nul)
    beyond = replace(given[7].source_credits[0], credit_units=10**12 + 1)
    given[7] = replace(given[7], source_credits=(beyond, *given[7].source_credits[1:]))
    results = await save_all(store, given)
    for index, result in enumerate(results):
        if index in {4, 7}:
            assert isinstance(result, RetryableError)
            assert "secret" not in "".join(traceback.format_exception(result)), "no payload in a log"
        else:
            assert result is SaveResult.SAVED
    assert await rows(sql) == whole(7)


async def test_a_number_too_large_for_its_column_fails_alone(store: PostgresStore, sql: asyncpg.Connection) -> None:
    given = attributions(3)
    given[1] = replace(given[1], utility_units=2**70)
    results = await save_all(store, given)
    assert [type(result) for result in results] == [SaveResult, RetryableError, SaveResult]
    assert await rows(sql) == whole(2)


async def test_nul_and_lone_surrogates_in_what_a_judge_said_are_stored_replaced(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    judgement = samples.judgement([[10_000, 0, 0]])
    judgement = replace(judgement, key_points=(replace(judgement.key_points[0], text="a\x00b\ud800c"),))
    assert await save(store, attribution_of(judgement=judgement)) is SaveResult.SAVED
    assert await sql.fetchval("SELECT evidence->'key_points'->0->>'text' FROM attributions") == "a�b�c"


async def held_up(sql: asyncpg.Connection) -> list[int]:
    """The backends of this database that wait for a lock now, seen from inside a transaction too."""
    await sql.execute("SELECT pg_stat_clear_snapshot()")
    return [row["pid"] for row in await sql.fetch(HELD_UP)]


async def held_up_count(sql: asyncpg.Connection) -> int:
    return len(await held_up(sql))


class Blocked:
    """A batch held up inside its transaction, by a key that another transaction has claimed and not committed."""

    def __init__(self, sql: asyncpg.Connection) -> None:
        self.sql = sql

    async def __aenter__(self) -> Self:
        self.transaction = self.sql.transaction()
        await self.transaction.start()
        await self.sql.execute(
            "INSERT INTO answers (tenant, answer_id, topic, content_hash, revision) "
            "VALUES ('default', 'a-001', 'answers', sha256(''), 1)"
        )
        return self

    async def until_held_up(self) -> None:
        await until_equal(lambda: held_up_count(self.sql), 1)

    async def __aexit__(self, *_: object) -> None:
        await self.transaction.rollback()


async def test_a_record_that_is_cancelled_does_not_take_its_neighbours_with_it(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    """sqlalchemy#6652: a cancelled task left its connection, and its locks, behind."""
    async with asyncio.TaskGroup() as tasks:
        async with Blocked(sql) as blocked:
            saves = [tasks.create_task(save(store, attribution)) for attribution in attributions(5)]
            await blocked.until_held_up()
            saves[2].cancel()
            await asyncio.sleep(0)
        results = [await task for index, task in enumerate(saves) if index != 2]
    assert results == [SaveResult.SAVED] * 4
    assert saves[2].cancelled()
    await until_equal(lambda: rows(sql), whole(5))
    assert store.database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # of QueuePool


async def test_a_store_that_is_left_in_mid_save_finishes_it_and_keeps_no_connection(
    settings: Settings, sql: asyncpg.Connection
) -> None:
    async with asyncio.TaskGroup() as tasks:
        async with open_store(settings, code_version="test") as store, Blocked(sql) as blocked:
            saves = [tasks.create_task(save(store, attribution)) for attribution in attributions(3)]
            await blocked.until_held_up()
        assert [await task for task in saves] == [SaveResult.SAVED] * 3
    assert store.database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # of QueuePool
    assert await rows(sql) == whole(3)


async def test_a_hung_save_is_given_up_after_its_own_timeout_and_gives_its_connection_back(
    settings: Settings, sql: asyncpg.Connection
) -> None:
    impatient = settings.postgres.model_copy(update={"save_timeout_s": 0.2})
    async with open_store(settings.model_copy(update={"postgres": impatient}), code_version="test") as store:
        async with Blocked(sql):
            (result,) = await save_all(store, attributions(2)[1:])
        assert isinstance(result, UnavailableError)
        await until(lambda: store.database.engine.pool.checkedout() == 0)  # type: ignore[attr-defined]  # of QueuePool
        assert await save_all(store, attributions(2)) == [SaveResult.SAVED] * 2


async def test_a_backend_that_dies_before_the_commit_costs_nothing(
    store: PostgresStore, sql: asyncpg.Connection, postgres_dsn: str
) -> None:
    async with asyncio.TaskGroup() as tasks:
        async with Blocked(sql) as blocked:
            saves = [tasks.create_task(save(store, attribution)) for attribution in attributions(5)]
            await blocked.until_held_up()
            for pid in await held_up(sql):
                assert await sql.fetchval("SELECT pg_terminate_backend($1)", pid)
        assert [await task for task in saves] == [SaveResult.SAVED] * 5
    assert await rows(sql) == whole(5)


@pytest.mark.parametrize("answered", [True, False], ids=["after the commit", "before the commit"])
async def test_a_commit_of_unknown_outcome_is_stored_exactly_once(
    settings: Settings, sql: asyncpg.Connection, postgres_dsn: str, answered: bool
) -> None:
    """litellm#29292 billed twice; asyncpg#309: the connection broke while COMMIT was under way."""
    async with CuttingProxy(postgres_dsn, cut_at=b"COMMIT", forward=answered) as proxy:
        through = settings.model_copy(update={"postgres": PostgresSettings(dsn=SecretStr(proxy.dsn), writers=1)})
        async with open_store(through, code_version="test") as store:
            results = await save_all(store, attributions(5))
            assert proxy.cuts == 1
            assert results == [SaveResult.DUPLICATE if answered else SaveResult.SAVED] * 5
    assert await rows(sql) == whole(5)


async def test_connections_that_all_died_while_idle_are_noticed_by_nobody(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    await save_all(store, attributions(5))
    await sql.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND datname = current_database()"
    )
    assert await store.find(samples.answer("a-001").key, samples.record()) is not None
    assert await save_all(store, attributions(10)) == [SaveResult.DUPLICATE] * 5 + [SaveResult.SAVED] * 5
    async with store.claim(100) as claimed:
        assert len(claimed) == 10


async def test_a_statement_planned_before_a_migration_is_planned_anew(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    """asyncpg#458: InvalidCachedStatementError for half of the requests after a migration."""
    await save_all(store, attributions(3))
    await sql.execute("DROP VIEW owner_credit_daily, answer_explained, ungrounded_key_points, answer_cost")
    await sql.execute("ALTER TABLE answers ALTER COLUMN revision TYPE bigint")
    assert await store.find(samples.answer("a-001").key, samples.record()) is not None
    assert await save_all(store, attributions(5)) == [SaveResult.DUPLICATE] * 3 + [SaveResult.SAVED] * 2


async def test_a_row_that_meets_a_partition_being_attached_is_routed_again(
    settings: Settings, sql: asyncpg.Connection
) -> None:
    """URL-Shortener-App PR#330: 0.6 % of inserts failed while a partition was attached."""
    month = await sql.fetchval("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM')")
    name = f"attributions_{month}"
    bounds = await sql.fetchval("SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = $1", name)
    one_writer = settings.postgres.model_copy(update={"writers": 1})
    async with open_store(settings.model_copy(update={"postgres": one_writer}), code_version="test") as store:
        # The first COPY of a connection looks the table up, which would wait for the lock and learn of the partition.
        await save_all(store, attributions(1))
        await sql.execute(f"ALTER TABLE attributions DETACH PARTITION {name}")
        async with asyncio.TaskGroup() as tasks:
            async with sql.transaction():
                await sql.execute("LOCK TABLE attributions_default IN ACCESS EXCLUSIVE MODE")
                saved = tasks.create_task(save(store, attributions(2)[1]))
                await until_equal(lambda: held_up_count(sql), 1)
                await sql.execute(f"ALTER TABLE attributions ATTACH PARTITION {name} {bounds}")
            assert await saved is SaveResult.SAVED
    assert await sql.fetchval("SELECT tableoid::regclass::text FROM attributions GROUP BY 1") == name
