"""What each kind of trouble with the database is called: wait, or stop and say what to do."""

import asyncio
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
from pydantic import SecretStr

from schemas.dead_letter import DeadLetterReason
from tests.support import samples
from tests.support.attributions import attribution_of, message_of
from tests.support.conditions import until_equal
from tests.support.cutting_proxy import CuttingProxy
from worker.adapters.postgres.store import PostgresStore, open_store
from worker.core.records import OutboundMessage
from worker.errors import FatalError, UnavailableError
from worker.ports import DeadLetter, SaveResult
from worker.settings import PostgresSettings, Settings

pytestmark = pytest.mark.postgres

HOLDING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"


def settings_of(dsn: str, **postgres: object) -> Settings:
    return Settings(postgres=PostgresSettings.model_validate({"dsn": SecretStr(dsn), **postgres}))


async def save(store: PostgresStore, answer_id: str = "a-1") -> SaveResult:
    attribution = attribution_of(samples.answer(answer_id))
    return await store.save(attribution, message_of(attribution))


async def test_a_server_that_is_not_there_is_an_outage(postgres_dsn: str) -> None:
    host_of = urlsplit(postgres_dsn)
    nowhere = urlunsplit(host_of._replace(netloc="nobody:nothing@127.0.0.1:1"))
    async with open_store(settings_of(nowhere), code_version="test") as store:
        for call in (
            save(store),
            store.find(samples.answer().key, samples.record()),
            store.pending(),
            store.check_dead_letter_limits(),
        ):
            with pytest.raises(UnavailableError):
                await call
        with pytest.raises(UnavailableError):
            async with store.claim(1):
                pass


async def test_a_database_that_was_never_migrated_stops_the_worker_with_advice(empty_postgres_dsn: str) -> None:
    async with open_store(settings_of(empty_postgres_dsn), code_version="test") as store:
        for call in (save(store), store.find(samples.answer().key, samples.record()), store.pending()):
            with pytest.raises(FatalError, match=r"42P01.*attribution-worker migrate"):
                await call


async def test_missing_rights_stop_the_worker_with_advice(postgres_dsn: str, sql: asyncpg.Connection) -> None:
    # Roles belong to the whole server, which other runs may use.
    role = f"reader_{uuid4().hex}"
    await sql.execute(
        f"CREATE ROLE {role} LOGIN PASSWORD 'secret'; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}"
    )
    try:
        host = urlsplit(postgres_dsn).netloc.rpartition("@")[2]
        dsn = urlunsplit(urlsplit(postgres_dsn)._replace(netloc=f"{role}:secret@{host}"))
        async with open_store(settings_of(dsn), code_version="test") as store:
            assert await store.find(samples.answer().key, samples.record()) is None
            with pytest.raises(FatalError, match="42501") as refused:
                await save(store)
            assert "secret" not in str(refused.value)
    finally:
        await sql.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_primary_that_became_read_only_is_an_outage_and_none_of_its_connections_is_used_again(
    sql: asyncpg.Connection, postgres_dsn: str
) -> None:
    """asyncpg#385: writes went on to a read-only former primary after a failover."""
    name = urlsplit(postgres_dsn).path.removeprefix("/")
    await sql.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    async with open_store(settings_of(postgres_dsn, transient_retries_max=0), code_version="test") as store:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(store.pending())
        with pytest.raises(UnavailableError, match="25006"):
            await save(store)
        await sql.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        assert await save(store) is SaveResult.SAVED


async def test_a_table_that_stays_locked_is_an_outage(postgres_dsn: str, sql: asyncpg.Connection) -> None:
    settings = settings_of(postgres_dsn, lock_timeout_s=0.05, transient_retries_max=1)
    async with open_store(settings, code_version="test") as store:
        async with sql.transaction():
            await sql.execute("LOCK TABLE answers IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(UnavailableError, match="55P03"):
                await save(store)
        assert await save(store) is SaveResult.SAVED


async def test_cancelled_calls_leave_no_connection_checked_out(store: PostgresStore, sql: asyncpg.Connection) -> None:
    """sqlalchemy#8145, asyncpg#1156."""
    await save(store)
    async with sql.transaction():
        await sql.execute("LOCK TABLE dead_letters, outbox IN ACCESS EXCLUSIVE MODE")
        async with asyncio.TaskGroup() as tasks:
            calls = [
                tasks.create_task(call) for call in (store.pending(), store.check_dead_letter_limits(), hold(store))
            ]
            await asyncio.sleep(0.05)
            for call in calls:
                call.cancel()
    assert store.database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # of QueuePool
    assert await store.pending() == 1


async def test_a_server_that_falls_silent_is_an_outage_wherever_it_is_asked(postgres_dsn: str) -> None:
    """MemMachine PR#1552, asyncpg#1326: a connection whose server is gone without a word waited for ever."""
    for ask in (hold, set_aside, PostgresStore.pending, PostgresStore.check_dead_letter_limits):
        async with CuttingProxy(postgres_dsn, cut_at=b"SELECT", forward=True, holds=True) as proxy:
            settings = settings_of(proxy.dsn, statement_timeout_s=0.1, transient_retries_max=0)
            async with open_store(settings, code_version="test") as store:
                with pytest.raises(UnavailableError):
                    await ask(store)
                await ask(store)


async def set_aside(store: PostgresStore) -> None:
    dead_letter = DeadLetter(samples.record(), DeadLetterReason.NOT_JSON, "no JSON", attempts=1)
    await store.save_dead_letter(dead_letter, OutboundMessage("dead-letters", b"k", b"v"))


@pytest.mark.parametrize("error", [UnavailableError("the broker is down"), asyncio.CancelledError()], ids=type)
async def test_what_went_wrong_within_a_transaction_is_told_and_not_that_its_session_is_gone_too(
    postgres_dsn: str, sql: asyncpg.Connection, error: BaseException
) -> None:
    """The relay publishes while the server restarts: a cancellation that got lost there would never end a worker."""
    async with open_store(settings_of(postgres_dsn, idle_in_transaction_timeout_s=0.05), code_version="test") as store:
        await save(store)

        async def publish() -> None:
            async with store.claim(1):
                await until_equal(lambda: sql.fetchval(HOLDING), 0)
                raise error

        with pytest.raises(type(error)) as raised:
            await publish()
        assert raised.value is error
        assert await store.pending() == 1


async def hold(store: PostgresStore) -> None:
    async with store.claim(1):
        pass


async def test_every_timeout_is_set_on_the_server(store: PostgresStore) -> None:
    assert await timeouts(store) == ["30s", "10s", "1min", "attribution-worker"]


async def test_behind_a_transaction_pooler_nothing_outlives_a_transaction(postgres_dsn: str) -> None:
    """sqlalchemy#6467: prepared statement does not exist behind pgbouncer."""
    async with open_store(settings_of(postgres_dsn, transaction_pooling=True), code_version="test") as store:
        assert await save(store) is SaveResult.SAVED
        assert await save(store) is SaveResult.DUPLICATE
        assert await timeouts(store) == ["30s", "10s", "1min", "attribution-worker"]
        async with store.claim(10) as rows:
            assert len(rows) == 1


async def timeouts(store: PostgresStore) -> list[str]:
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "application_name")
    async with store.database.transaction() as connection:
        return [(await connection.exec_driver_sql(f"SHOW {name}")).scalar_one() for name in names]
