"""The main line behind pgbouncer in transaction mode (asyncpg#198, #1058; sqlalchemy#6467)."""

from collections.abc import Iterator

import pytest

from tests.conftest import in_ci
from tests.support import lines
from tests.support.kafka import consume, produce
from tests.support.pgbouncer import pgbouncer, pooled
from worker.adapters.postgres.migrate import migrate_database
from worker.app import ensure_topics
from worker.core.outcome import Outcome
from worker.embedded.broker import Broker
from worker.errors import FatalError

pytestmark = pytest.mark.postgres


@pytest.fixture
def pooled_dsn(postgres_dsn: str) -> Iterator[str]:
    program = pgbouncer()
    if program is None:
        if in_ci():
            pytest.fail("pgbouncer is not installed: apt-get install pgbouncer")
        pytest.skip("pgbouncer is not installed: apt-get install pgbouncer")
    with pooled(program, postgres_dsn) as dsn:
        yield dsn


async def test_the_whole_line_works_behind_a_pooler_in_transaction_mode(
    kafka_broker: Broker, postgres_dsn: str, pooled_dsn: str, topics_prefix: str
) -> None:
    pooling = {"transaction_pooling": True, "save_batch_max": 7, "writers": 4}
    settings = lines.settings_of(kafka_broker, pooled_dsn, topics_prefix, postgres=pooling)
    await ensure_topics(settings)
    events = lines.events(lines.answers(60))
    await produce(kafka_broker, settings.kafka.answers_topic, [*events, b"\x00 no event", *events[:10]])

    summary = await lines.run_until_drained(settings)

    assert summary.outcomes == {Outcome.ATTRIBUTED: 60, Outcome.DUPLICATE: 10, Outcome.DEAD_LETTER: 1}
    published = await consume(kafka_broker, settings.kafka.attributions_topic, 60)
    assert len({dict(record.headers)["ce_id"] for record in published}) == 60
    assert await lines.value(postgres_dsn, "SELECT count(*) FROM outbox") == 0
    assert await lines.value(postgres_dsn, "SELECT count(*) FROM attributions") == 60


async def test_migrations_are_refused_behind_a_pooler(pooled_dsn: str, kafka_broker: Broker) -> None:
    settings = lines.settings_of(kafka_broker, pooled_dsn, "none", postgres={"transaction_pooling": True})
    with pytest.raises(FatalError, match=r"postgres\.transaction_pooling"):
        await migrate_database(settings.postgres)
