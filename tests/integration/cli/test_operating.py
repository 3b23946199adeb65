"""`migrate`, `topics`, `verify` and `resume` on real services."""

import asyncio

import pytest

from tests.support import lines
from tests.support.command_line import RunHere, environment_of
from tests.support.kafka import create_topic
from worker.adapters.postgres.store import open_store
from worker.app import open_attributor
from worker.core.records import OutboundMessage, Record
from worker.demo.first_run import sample_events
from worker.embedded.broker import Broker
from worker.settings import Settings

pytestmark = pytest.mark.postgres


def at(dsn: str) -> dict[str, str]:
    return {"ATTRIBUTION_POSTGRES__DSN": dsn}


async def store_samples(dsn: str) -> int:
    """The sample answers, judged and saved as the worker does it; how many."""
    settings = Settings().overridden({"postgres": {"dsn": dsn}})
    async with open_attributor(settings) as attribute, open_store(settings, code_version="test") as store:
        events = sample_events()
        for offset, event in enumerate(events):
            attribution = await attribute(Record("answers", 0, offset, 0, None, event))
            await store.save(attribution, OutboundMessage("attributions", b"k", b"v"))
    return len(events)


@pytest.fixture
def stored_dsn(postgres_dsn: str) -> str:
    asyncio.run(store_samples(postgres_dsn))
    return postgres_dsn


def execute(dsn: str, *statements: str) -> None:
    """ITS ANSWER stands for the one whose rows are tampered with."""
    for statement in statements:
        asyncio.run(lines.rows(dsn, statement.replace("ITS ANSWER", f"answer_id = '{TAMPERED}'")))


def test_migrate_makes_a_database_ready_and_changes_nothing_the_second_time(
    run: RunHere, empty_postgres_dsn: str
) -> None:
    described = "SELECT table_name, column_name, data_type FROM information_schema.columns ORDER BY 1, 2"
    assert run("migrate", env=at(empty_postgres_dsn)).stdout == "The database is up to date.\n"
    before = asyncio.run(lines.rows(empty_postgres_dsn, described))
    again = run("migrate", env=at(empty_postgres_dsn))
    assert (again.exit_code, again.stderr) == (0, "")
    assert asyncio.run(lines.rows(empty_postgres_dsn, described)) == before


@pytest.mark.parametrize("command", [["verify"], ["resume", "--reason", "mended"]], ids=lambda command: command[0])
def test_a_database_without_tables_is_told_how_to_get_them(
    run: RunHere, empty_postgres_dsn: str, command: list[str]
) -> None:
    ran = run(*command, env=at(empty_postgres_dsn))
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("stopped: ")
    assert "attribution-worker migrate" in ran.stderr
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["migrate"], ["verify"]], ids=lambda command: command[0])
@pytest.mark.parametrize("wrong", ["password", "database"])
def test_wrong_access_is_one_message_that_shows_no_password(
    run: RunHere, postgres_dsn: str, command: list[str], wrong: str
) -> None:
    user_and_password = postgres_dsn.split("://")[1].split("@", maxsplit=1)[0]
    changes = {"password": (user_and_password, "attribution:hunter2"), "database": (postgres_dsn[-12:], "/nowhere")}
    ran = run(*command, env=at(postgres_dsn.replace(*changes[wrong])))
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.count("\n") == 1
    assert "postgres.dsn" in ran.stderr
    assert "hunter2" not in ran.stderr
    assert user_and_password.split(":")[-1] not in ran.stderr


def test_topics_are_made_once_and_then_found_as_they_should_be(
    run: RunHere, kafka_broker: Broker, topics_prefix: str
) -> None:
    env = environment_of(lines.settings_of(kafka_broker, "postgresql://host", topics_prefix))
    missing = run("topics", "--check", env=env)
    assert missing.exit_code == 1
    assert "does not exist" in missing.stderr
    assert "`attribution-worker topics` makes missing topics" in missing.stderr

    made = run("topics", env=env)
    assert (made.exit_code, made.stderr) == (0, "")
    assert made.stdout.count("created") == 3
    for again in (run("topics", env=env), run("topics", "--check", env=env)):
        assert (again.exit_code, again.stderr) == (0, "")
        assert again.stdout.count("exists") == 3


def test_a_topic_that_differs_is_shown_and_left_as_it_is(
    run: RunHere, kafka_broker: Broker, topics_prefix: str
) -> None:
    settings = lines.settings_of(kafka_broker, "postgresql://host", topics_prefix)
    asyncio.run(create_topic(kafka_broker, settings.kafka.answers_topic, partitions=1))
    ran = run("topics", env=environment_of(settings), columns=200)
    assert ran.exit_code == 1
    assert "partitions is 1, settings say 3" in ran.stdout
    assert run("topics", "--check", env=environment_of(settings), columns=200).exit_code == 1


def test_what_is_stored_is_equal_to_its_evidence(run: RunHere, stored_dsn: str) -> None:
    ran = run("verify", env=at(stored_dsn))
    assert (ran.exit_code, ran.stderr) == (0, ""), "and no progress bar where nobody watches"
    assert (
        ran.stdout == f"{len(sample_events())} attributions recomputed from their evidence: all equal, bit for bit.\n"
    )


def test_an_audit_of_nothing_does_not_say_that_all_is_equal(run: RunHere, stored_dsn: str, postgres_dsn: str) -> None:
    ran = run("verify", "--since", "2100-01-01", env=at(stored_dsn))
    assert (ran.exit_code, ran.stdout) == (
        0,
        "Nothing to verify: no attribution was settled since 2100-01-01 00:00:00.\n",
    )


TAMPERED = "tidal-barrage-complementary"


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "UPDATE source_attributions SET credit_units = credit_units + 1 WHERE ITS ANSWER AND position = 1",
            "credit_units of source 1 is stored as",
        ),
        (
            "UPDATE source_attributions SET owner_id = 'thief' WHERE ITS ANSWER AND position = 2",
            "owner_id of source 2 is stored as thief",
        ),
        ("DELETE FROM source_attributions WHERE ITS ANSWER AND position = 3", "has 3 rows, the evidence 4 sources"),
        (
            "UPDATE attributions SET evidence = jsonb_set(evidence, '{supports,0,0}', '9999') WHERE ITS ANSWER",
            "utility_units is stored as",
        ),
        (
            "UPDATE attributions SET evidence = jsonb_set(evidence, '{supports,0,0}', '99999') WHERE ITS ANSWER",
            "cannot be recomputed",
        ),
        ("UPDATE attributions SET evidence = evidence - 'supports' WHERE ITS ANSWER", "cannot be recomputed"),
        ("UPDATE attributions SET evidence = '[]' WHERE ITS ANSWER", "cannot be recomputed"),
        (
            "UPDATE attributions SET key_point_count = 7 WHERE ITS ANSWER",
            "key_point_count is stored as 7, computed as 3",
        ),
    ],
)
def test_one_changed_number_is_found_and_its_answer_named(
    run: RunHere, stored_dsn: str, statement: str, told: str
) -> None:
    execute(stored_dsn, statement)
    ran = run("verify", env=at(stored_dsn))
    assert ran.exit_code == 1
    assert all(line.startswith("lumen/tidal-barrage-complementary revision 1: ") for line in ran.stderr.splitlines())
    assert told in ran.stderr
    assert ran.stdout == f"1 of {len(sample_events())} attributions differ from their evidence: see above.\n"


@pytest.mark.parametrize(
    "statement",
    [
        'UPDATE methods SET document = document || \'{"grouping": "owner"}\'',
        "UPDATE methods SET document = document || '{\"policy\": 3}'",
        "DELETE FROM methods",
    ],
)
def test_a_changed_method_is_found_on_every_answer_that_names_it(run: RunHere, stored_dsn: str, statement: str) -> None:
    execute(stored_dsn, statement)
    ran = run("verify", env=at(stored_dsn))
    assert ran.exit_code == 1
    assert ran.stderr.count("revision 1: ") == len(sample_events())


def test_since_leaves_out_what_was_settled_before(run: RunHere, stored_dsn: str) -> None:
    execute(
        stored_dsn,
        "UPDATE source_attributions SET settled_at = settled_at - interval '40 days', credit_units = 0 "
        "WHERE ITS ANSWER",
        "UPDATE attributions SET settled_at = settled_at - interval '40 days' WHERE ITS ANSWER",
    )
    [row] = asyncio.run(lines.rows(stored_dsn, "SELECT (now() - interval '1 day') AT TIME ZONE 'UTC' AS yesterday"))
    yesterday = row["yesterday"].strftime("%Y-%m-%dT%H:%M:%S")
    assert run("verify", env=at(stored_dsn)).exit_code == 1
    for since in (yesterday, yesterday + "Z", yesterday.replace("T", " ") + "+00:00"):
        ran = run("verify", "--since", since, env=at(stored_dsn))
        assert (ran.exit_code, ran.stdout.split()[0]) == (0, str(len(sample_events()) - 1))


def test_a_hostile_answer_id_cannot_command_the_terminal(run: RunHere, stored_dsn: str) -> None:
    execute(
        stored_dsn,
        "UPDATE attributions SET answer_id = E'\\x1b[2J[red]', key_point_count = 7 WHERE ITS ANSWER",
    )
    ran = run("verify", env=at(stored_dsn))
    assert ran.exit_code == 1
    assert "\x1b" not in ran.stderr + ran.stdout
    assert "[2J[red]" in ran.stderr


def test_resuming_is_kept_with_its_reason(run: RunHere, postgres_dsn: str) -> None:
    ran = run("resume", "--reason", "rolled back the build", env=at(postgres_dsn))
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "Start the workers again" in ran.stdout
    tables = asyncio.run(
        lines.rows(
            postgres_dsn,
            "SELECT query_to_xml(format('SELECT * FROM %I', tablename), true, false, '')::text "
            "AS content FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE '%resume%'",
        )
    )
    assert any("rolled back the build" in table["content"] for table in tables)
