"""What each database role may do, tried: a worker adds and never changes, a reader reads no bytes of strangers."""

import secrets
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from pydantic import SecretStr

from schemas.dead_letter import DeadLetterReason
from tests.support import lines, samples
from tests.support.attributions import attribution_of, message_of
from worker.adapters.postgres.audit import Audit
from worker.adapters.postgres.database import open_database
from worker.adapters.postgres.dead_letter_desk import DeadLetterDesk, DeadLetterFilter, Resolution
from worker.adapters.postgres.outbox_store import PostgresOutboxStore
from worker.adapters.postgres.rights import RIGHTS, Role, grant_rights
from worker.adapters.postgres.store import open_store
from worker.adapters.postgres.tables import PARTITIONED_BY, metadata
from worker.core.records import OutboundMessage
from worker.errors import FatalError
from worker.ports import DeadLetter, SaveResult
from worker.settings import PostgresSettings, Settings

pytestmark = pytest.mark.postgres


def settings_of(dsn: str) -> Settings:
    return Settings(postgres=PostgresSettings(dsn=SecretStr(dsn)))


@pytest.fixture
async def dsns(postgres_dsn: str) -> AsyncIterator[Mapping[Role, str]]:
    """A login for each role, with the rights that `migrate` gives it."""
    made = {role: f"test_{role}_{secrets.token_hex(4)}" for role in Role}
    password = secrets.token_urlsafe(12)
    for name in made.values():
        await lines.rows(postgres_dsn, f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
    await grant_rights(settings_of(postgres_dsn).postgres, made)
    address = urlsplit(postgres_dsn)
    host = address.netloc.rpartition("@")[2]
    yield {role: urlunsplit(address._replace(netloc=f"{name}:{password}@{host}")) for role, name in made.items()}
    for name in made.values():
        await lines.rows(postgres_dsn, f"DROP OWNED BY {name}")
        await lines.rows(postgres_dsn, f"DROP ROLE {name}")


async def settle_and_set_aside(dsn: str) -> None:
    """What a worker writes: an attribution and a dead letter, both published."""
    record = samples.record(b"not json")
    letter = DeadLetter(record, DeadLetterReason.NOT_JSON, "value: not JSON", attempts=1)
    attribution = attribution_of()
    async with open_store(settings_of(dsn), code_version="test") as store:
        assert await store.ensure_partitions() == []
        await store.check_dead_letter_limits()
        assert await store.find(attribution.answer.key, record) is None
        assert await store.save(attribution, message_of(attribution)) is SaveResult.SAVED
        await store.save_dead_letter(letter, OutboundMessage("answers.dead-letter", None, record.value))
        async with store.claim(10) as rows:
            assert len(rows) == 2
        assert await store.pending() == 0


async def refused(dsn: str, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await lines.rows(dsn, statement)


async def test_a_writer_does_a_workers_work(dsns: Mapping[Role, str]) -> None:
    await settle_and_set_aside(dsns[Role.WRITER])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE attributions SET utility_units = 0",
        "DELETE FROM attributions",
        "UPDATE source_attributions SET share_units = 1",
        "UPDATE answers SET revision = 2",
        "DELETE FROM answers",
        "TRUNCATE attributions",
        "ALTER TABLE attributions ADD COLUMN more text",
        "DROP TABLE outbox",
        "UPDATE dead_letters SET state = 'discarded'",
        "DELETE FROM dead_letters",
        "INSERT INTO intake_resumes (topic, reason, resumed_by) VALUES ('answers', 'because', 'me')",
        "UPDATE outbox SET value = ''",
        "SELECT * FROM attributions_default",
        "CREATE TABLE mine (x int)",
    ],
)
async def test_a_writer_changes_nothing_that_is_settled_and_no_table(dsns: Mapping[Role, str], statement: str) -> None:
    await refused(dsns[Role.WRITER], statement)


async def test_a_writer_works_on_without_partitions_that_it_may_not_make(
    postgres_dsn: str, dsns: Mapping[Role, str]
) -> None:
    [partition] = await lines.rows(
        postgres_dsn,
        "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'attributions'::regclass "
        "AND inhrelid::regclass::text LIKE '%\\_____\\___' ORDER BY 1 LIMIT 1",
    )
    await lines.rows(postgres_dsn, f"DROP TABLE {partition['name']}")
    await settle_and_set_aside(dsns[Role.WRITER])
    assert await lines.value(postgres_dsn, "SELECT count(*) FROM attributions_default") == 1
    async with open_store(settings_of(postgres_dsn), code_version="test") as store:
        assert await store.ensure_partitions() == [partition["name"]]
    assert await lines.value(postgres_dsn, "SELECT count(*) FROM attributions_default") == 0


async def test_an_operator_replays_discards_and_resumes_and_no_more(dsns: Mapping[Role, str]) -> None:
    await settle_and_set_aside(dsns[Role.WRITER])
    operator = dsns[Role.OPERATOR]
    async with open_database(settings_of(operator).postgres) as database:
        desk = DeadLetterDesk(database)
        [number] = await desk.open_ids(DeadLetterFilter())
        assert await desk.replay(number, to_topic="answers", note=None) is Resolution.REPLAYED
        assert await desk.discard(DeadLetterFilter(), note="nothing left") == 0
        async with PostgresOutboxStore(database, topic="answers").claim(10) as rows:
            assert len(rows) == 1
    async with open_store(settings_of(operator), code_version="test") as store:
        await store.resume("mended")
    for statement in (
        "SELECT * FROM attributions",
        "UPDATE dead_letters SET value = NULL",
        "DELETE FROM dead_letters",
        "DELETE FROM intake_resumes",
    ):
        await refused(operator, statement)


async def test_a_reader_reads_views_and_results_and_may_verify(postgres_dsn: str, dsns: Mapping[Role, str]) -> None:
    await settle_and_set_aside(dsns[Role.WRITER])
    reader = dsns[Role.READER]
    views = await lines.rows(postgres_dsn, "SELECT viewname FROM pg_views WHERE schemaname = 'public'")
    assert len(views) >= 5
    for view in views:
        await lines.rows(reader, f"TABLE {view['viewname']}")
    assert await lines.value(reader, "SELECT reason FROM dead_letters") == "not_json"
    async with open_database(settings_of(reader).postgres) as database:
        assert [finding.differences async for finding in Audit(database).verify(None)] == [()]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT value FROM dead_letters",
        "SELECT response FROM llm_calls",
        "SELECT * FROM outbox",
        "INSERT INTO intake_resumes (topic, reason, resumed_by) VALUES ('answers', 'because', 'me')",
        "DELETE FROM attributions",
        "CREATE TABLE mine (x int)",
    ],
)
async def test_a_reader_sees_no_bytes_as_they_came_in_and_writes_nothing(
    dsns: Mapping[Role, str], statement: str
) -> None:
    await refused(dsns[Role.READER], statement)


async def test_rights_granted_before_are_taken_back(postgres_dsn: str, dsns: Mapping[Role, str]) -> None:
    name = urlsplit(dsns[Role.READER]).username
    assert name is not None
    await lines.rows(postgres_dsn, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}")
    await grant_rights(settings_of(postgres_dsn).postgres, {Role.READER: name})
    await refused(dsns[Role.READER], "DELETE FROM attributions")


@pytest.mark.parametrize("role", ["no_such_role", 'x"; DROP TABLE answers; --'])
async def test_a_role_that_does_not_exist_is_named(postgres_dsn: str, role: str) -> None:
    with pytest.raises(FatalError, match="there is no database role"):
        await grant_rights(settings_of(postgres_dsn).postgres, {Role.WRITER: role})


async def test_a_role_that_no_right_binds_is_refused(postgres_dsn: str) -> None:
    owner = await lines.value(postgres_dsn, "SELECT current_user::text")
    with pytest.raises(FatalError, match="rights would not bind it"):
        await grant_rights(settings_of(postgres_dsn).postgres, {Role.WRITER: owner})


def test_every_table_is_within_a_writers_reach_or_left_out_on_purpose() -> None:
    assert set(RIGHTS[Role.WRITER]) == set(metadata.sorted_tables), "name the new table in RIGHTS"
    assert all("UPDATE" not in RIGHTS[Role.WRITER][table] for table in PARTITIONED_BY if table.name != "llm_calls")
