"""Of two workers with one static membership the older one leaves."""

import asyncio

import pytest

from tests.fakes.judge import FakeJudge
from tests.support import lines
from tests.support.conditions import until_equal
from tests.support.kafka import produce
from worker.adapters.postgres.database import open_database
from worker.adapters.postgres.worker_place import PostgresWorkerPlace
from worker.app import Worker, ensure_topics, open_worker
from worker.embedded.broker import Broker
from worker.errors import FatalError
from worker.settings import KafkaSettings, Settings

pytestmark = pytest.mark.postgres


async def test_whoever_took_a_place_last_holds_it(settings: Settings) -> None:
    kafka = KafkaSettings(group_instance_id="worker-0")
    async with open_database(settings.postgres) as database:
        older, newer = PostgresWorkerPlace(database, kafka), PostgresWorkerPlace(database, kafka)
        neighbour = PostgresWorkerPlace(database, KafkaSettings(group_instance_id="worker-1"))
        for worker in (older, neighbour):
            await worker.take()
            await worker.check()
        await newer.take()
        await newer.check()
        await neighbour.check()
        with pytest.raises(FatalError, match="GROUP_INSTANCE_ID"):
            await older.check()


async def test_a_worker_that_is_no_static_member_has_no_place_to_lose(settings: Settings) -> None:
    async with open_database(settings.postgres) as database:
        one, other = PostgresWorkerPlace(database, KafkaSettings()), PostgresWorkerPlace(database, KafkaSettings())
        for worker in (one, other):
            await worker.take()
        await one.check()
        await other.check()


@pytest.mark.kafka
async def test_of_two_workers_with_one_instance_id_the_older_stops_and_the_newer_works(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    kafka = {"group_instance_id": "worker-0", "place_check_s": 0.05}
    settings = lines.settings_of(kafka_broker, postgres_dsn, topics_prefix, kafka=kafka)
    await ensure_topics(settings)
    stop = asyncio.Event()

    async def is_replaced(worker: Worker) -> None:
        with pytest.raises(FatalError, match="another worker has taken the place"):
            await worker.run(asyncio.Event())

    async def works(worker: Worker) -> None:
        await worker.run(stop)

    async with (
        open_worker(settings, FakeJudge()) as older,
        open_worker(settings, FakeJudge()) as newer,
        asyncio.TaskGroup() as tasks,
    ):
        replaced = tasks.create_task(is_replaced(older))
        places = "SELECT count(*) FROM worker_places"
        await until_equal(lambda: lines.value(postgres_dsn, places), 1)
        tasks.create_task(works(newer))
        await replaced
        await produce(kafka_broker, settings.kafka.answers_topic, lines.events(lines.answers(5)))
        await until_equal(lambda: lines.value(postgres_dsn, "SELECT count(*) FROM answers"), 5)
        stop.set()
