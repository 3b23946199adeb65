"""The whole line on a real Kafka and a real PostgreSQL: answer events in, credit found with SQL."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import asyncpg
import pytest

from tests.fakes.judge import FakeJudge, GatedJudge
from tests.support import lines, samples
from tests.support.conditions import until, until_equal
from tests.support.kafka import committed, consume, produce
from worker.adapters.postgres.migrate import migrate_database
from worker.app import ensure_topics, open_worker, resume
from worker.core.model import UNIT_SCALE
from worker.core.outcome import Outcome
from worker.embedded.broker import Broker
from worker.embedded.postgres import PostgresServer
from worker.embedded.postgres_binaries import embedded_binaries, system_binaries
from worker.errors import FatalError, RetryableError

SETTLED = "SELECT count(*) FROM answers"


async def test_answers_become_credit_in_sql_and_messages_on_the_topic(
    any_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    settings = lines.settings_of(any_broker, postgres_dsn, topics_prefix)
    await ensure_topics(settings)
    answers = lines.answers(20)
    await produce(any_broker, settings.kafka.answers_topic, lines.events(answers))

    summary = await lines.run_until_drained(settings)

    assert summary.outcomes == {Outcome.ATTRIBUTED: 20}
    stored = await lines.rows(
        postgres_dsn,
        "SELECT answer_id, sum(credit_units) AS credit, sum(share_units) AS share, count(*) AS sources "
        "FROM source_attributions GROUP BY answer_id",
    )
    assert {row["answer_id"] for row in stored} == {answer.key.answer_id for answer in answers}
    assert {(row["credit"], row["share"], row["sources"]) for row in stored} == {(UNIT_SCALE, UNIT_SCALE, 3)}
    published = await consume(any_broker, settings.kafka.attributions_topic, 20)
    told = [json.loads(record.value) for record in published]
    assert {message["answer_id"] for message in told} == {answer.key.answer_id for answer in answers}
    assert len({dict(record.headers)["ce_id"] for record in published}) == 20
    assert await lines.value(postgres_dsn, "SELECT count(*) FROM outbox") == 0


async def test_every_kind_of_record_ends_in_its_one_outcome_and_the_partition_goes_on(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    settings = lines.settings_of(
        kafka_broker, postgres_dsn, topics_prefix, kafka={"partitions": 1}, intake={"event_bytes_max": 20_000}
    )
    await ensure_topics(settings)
    first = samples.answer("a-1")
    other_content = replace(first, query="Another question?")
    unknown_version = samples.event_of(samples.answer("a-9")) | {"schema_version": 2}
    poison: list[bytes | None] = [
        b"\x00\x01garbage",
        json.dumps({"answer_id": "a-8"}).encode(),
        json.dumps(unknown_version).encode(),
        json.dumps(samples.event_of(samples.answer("a-7", text="x" * 20_001))).encode(),
    ]
    values: list[bytes | None] = [
        *lines.events([first]),
        None,
        *poison,
        *lines.events([first, other_content]),
        *lines.events([samples.answer("a-2", source_count=0), samples.answer("a-3", text=""), samples.answer("a-4")]),
    ]
    for value in values:  # one at a time: the judge may finish a partition's records in any order
        await produce(kafka_broker, settings.kafka.answers_topic, [value], headers=[("trace", b"\xff")], key=b"k")
        summary = await lines.run_until_drained(settings)
        assert sum(summary.outcomes.values()) == 1, "one record, one outcome"

    outcomes = Counter(row["status"] for row in await lines.rows(postgres_dsn, "SELECT status FROM attributions"))
    assert outcomes == {"attributed": 2, "no_sources": 1, "no_key_points": 1}
    letters = await lines.rows(postgres_dsn, "SELECT * FROM dead_letters ORDER BY record_offset")
    assert [letter["reason"] for letter in letters] == [
        "not_json",
        "invalid_event",
        "unsupported_version",
        "too_large",
        "conflicting_content",
    ]
    set_aside = [*poison, *lines.events([other_content])]
    assert [letter["value"] for letter in letters] == set_aside
    published = await consume(kafka_broker, settings.kafka.dead_letter_topic, 5)
    assert [record.value for record in published] == set_aside
    assert [dict(record.headers)["dlq_reason"].decode() for record in published] == [row["reason"] for row in letters]
    assert {dict(record.headers)["trace"] for record in published} == {b"\xff"}
    assert await committed(kafka_broker, settings.kafka.group_id, settings.kafka.answers_topic) == len(values)


async def test_a_redelivered_event_is_not_judged_again_even_by_another_method(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    settings = lines.settings_of(kafka_broker, postgres_dsn, topics_prefix)
    await ensure_topics(settings)
    events = lines.events(lines.answers(10))
    await produce(kafka_broker, settings.kafka.answers_topic, events)
    await lines.run_until_drained(settings)
    before = await lines.rows(postgres_dsn, "SELECT * FROM source_attributions ORDER BY answer_id, position")

    await produce(kafka_broker, settings.kafka.answers_topic, events)
    deployed = settings.overridden({"credit": {"policy": "top_k", "grouping": "owner"}})
    judge = FakeJudge()
    summary = await lines.run_until_drained(deployed, judge)

    assert summary.outcomes == {Outcome.DUPLICATE: 10}
    assert judge.judged == []
    after = await lines.rows(postgres_dsn, "SELECT * FROM source_attributions ORDER BY answer_id, position")
    assert after == before


async def test_postgres_stopped_in_mid_stream_costs_time_and_nothing_else(
    kafka_broker: Broker, topics_prefix: str
) -> None:
    """No attempt is used up and no record set aside, although one attempt is all that each record has."""
    with PostgresServer(system_binaries() or embedded_binaries()) as server:
        settings = lines.settings_of(
            kafka_broker, server.dsn, topics_prefix, intake={"records_max": 20}, settle={"attempts_max": 1}
        )
        await ensure_topics(settings)
        await migrate_database(settings.postgres)
        await produce(kafka_broker, settings.kafka.answers_topic, lines.events(lines.answers(200)))
        judge = GatedJudge(passes=50)
        async with open_worker(settings, judge) as worker, asyncio.TaskGroup() as tasks:
            stop = asyncio.Event()
            tasks.create_task(worker.run(stop))
            await until_equal(lambda: lines.value(server.dsn, SETTLED), 50)
            await asyncio.to_thread(server.stop)
            judge.allow(200)
            await until(lambda: worker.outages.waiting > 0, timeout_s=60)
            waits_before = worker.telemetry.outage_waits
            await until(lambda: worker.telemetry.outage_waits > waits_before + 100, timeout_s=60)
            judged_in_outage = len(judge.judged)
            await asyncio.to_thread(server.start)
            await until_equal(lambda: lines.value(server.dsn, SETTLED), 200)
            stop.set()
        assert judged_in_outage <= 50 + 20 + settings.intake.records_max, "intake was closed during the outage"
        assert worker.telemetry.outcomes == {Outcome.ATTRIBUTED: 200}
        assert await lines.value(server.dsn, "SELECT count(*) FROM dead_letters") == 0


async def test_a_build_that_fails_every_record_stops_and_stays_stopped(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    """A bad deploy must not empty the topic into the dead letters, however often it is restarted."""
    settings = lines.settings_of(
        kafka_broker, postgres_dsn, topics_prefix, dead_letters={"consecutive_max": 5}, settle={"attempts_max": 1}
    )
    await ensure_topics(settings)
    await produce(kafka_broker, settings.kafka.answers_topic, lines.events(lines.answers(40)))
    for _ in range(10):
        broken = FakeJudge(failures=[RetryableError("a bug of this build")] * 1_000)
        with pytest.raises(FatalError, match="resume"):
            await lines.run_until_drained(settings, broken)
    assert await lines.value(postgres_dsn, "SELECT count(*) FROM dead_letters") == 5

    await resume(settings, "rolled back")
    summary = await lines.run_until_drained(settings)
    assert summary.outcomes[Outcome.ATTRIBUTED] == 35
    assert await lines.value(postgres_dsn, SETTLED) == 35


async def test_a_worker_killed_in_mid_stream_loses_nothing_and_pays_nothing_twice(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    settings = lines.settings_of(kafka_broker, postgres_dsn, topics_prefix)
    await ensure_topics(settings)
    await produce(kafka_broker, settings.kafka.answers_topic, lines.events(lines.answers(60)))
    judge = FakeJudge(failures=[RetryableError("try again")] * 7 + [RuntimeError("the process dies")])
    with pytest.raises(RuntimeError, match="the process dies"):
        await lines.run_until_drained(settings, judge)
    await lines.run_until_drained(settings)
    assert await lines.value(postgres_dsn, SETTLED) == 60
    assert await lines.value(postgres_dsn, "SELECT count(*) FROM attributions") == 60
    published = await consume(kafka_broker, settings.kafka.attributions_topic, 60)
    assert len({dict(record.headers)["ce_id"] for record in published}) == 60


async def test_until_drained_waits_for_messages_that_another_relay_holds(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    """A relay just cut off, say, whose end the database has not noticed yet."""
    settings = lines.settings_of(kafka_broker, postgres_dsn, topics_prefix)
    await ensure_topics(settings)
    topic = settings.kafka.attributions_topic
    async with other_relay(postgres_dsn, topic) as let_go, asyncio.TaskGroup() as tasks:
        run = tasks.create_task(lines.run_until_drained(settings))
        done, _ = await asyncio.wait({run}, timeout=3)
        assert not done, "a message is not published yet"
        await let_go()
        await run
    assert await lines.value(postgres_dsn, "SELECT count(*) FROM outbox") == 0
    [message] = await consume(kafka_broker, topic, 1)
    assert message.value == b"held"


@asynccontextmanager
async def other_relay(dsn: str, topic: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Holds a message of the outbox until it is told to let go."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("INSERT INTO outbox (topic, key, value, headers) VALUES ($1, 'k', 'held', '')", topic)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT FROM outbox FOR UPDATE")
        yield transaction.rollback
    finally:
        await connection.close()
