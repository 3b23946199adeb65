"""The whole worker, from the answers topic to PostgreSQL and out again, while its Kafka misbehaves everywhere."""

import asyncio
import random
from collections import Counter
from functools import partial

import pytest

from tests.fakes.judge import FakeJudge
from tests.guarantees.mock_cluster.answers_topic import PATIENCE_S, everything_in
from tests.guarantees.mock_cluster.conftest import NODES, SEEDS, SettingsFor
from tests.support.conditions import until, until_equal
from tests.support.kafka import committed, produce
from tests.support.lines import answers, events, settings_of, value
from tests.support.mock_kafka import Api, Code, MockKafka
from worker.adapters.kafka.topics import check_topics
from worker.app import Worker, open_worker
from worker.errors import FatalError
from worker.settings import KafkaSettings, Settings

PARTITIONS = 3
WAVES = 3
ANSWERS_PER_WAVE = 30

FAULTS = {
    Api.OFFSET_COMMIT: [Code.UNKNOWN_SERVER_ERROR, Code.NOT_COORDINATOR, Code.REBALANCE_IN_PROGRESS],
    Api.HEARTBEAT: [Code.REQUEST_TIMED_OUT, Code.REBALANCE_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE],
    Api.OFFSET_FETCH: [Code.COORDINATOR_NOT_AVAILABLE, Code.REQUEST_TIMED_OUT],
    Api.FETCH: [Code.NOT_LEADER_OR_FOLLOWER, Code.KAFKA_STORAGE_ERROR, Code.CONNECTION_CLOSED],
    Api.PRODUCE: [Code.NOT_ENOUGH_REPLICAS, Code.UNKNOWN_SERVER_ERROR, Code.CONNECTION_CLOSED, Code.CORRUPT_MESSAGE],
    Api.JOIN_GROUP: [Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR],
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("drops_connections")
@pytest.mark.parametrize("seed", SEEDS[:1])
async def test_a_kafka_that_misbehaves_everywhere_costs_time_and_nothing_else(
    cluster: MockKafka, settings_for: SettingsFor, postgres_dsn: str, topics_prefix: str, seed: int
) -> None:
    kafka = settings_for(request_timeout_ms=2_000).model_dump(exclude_defaults=True)
    settings = settings_of(cluster, postgres_dsn, topics_prefix, kafka=kafka)
    for topic in (settings.kafka.answers_topic, settings.kafka.attributions_topic, settings.kafka.dead_letter_topic):
        cluster.create_topic(topic, partitions=PARTITIONS)
    total = WAVES * ANSWERS_PER_WAVE
    stop = asyncio.Event()
    async with open_worker(settings, FakeJudge()) as worker, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(worker.run(stop))
        await misbehave(cluster, settings, worker, random.Random(seed))
        stop.set()
        summary = await running

    assert sum(summary.outcomes.values()) >= total
    for table in ("answers", "attributions"):
        assert await stored(settings, table) == total
    for table in ("dead_letters", "outbox"):
        assert await stored(settings, table) == 0
    assert len(await published_ids(cluster, settings.kafka)) == total


async def misbehave(cluster: MockKafka, settings: Settings, worker: Worker, chances: random.Random) -> None:
    """In waves, so that each fault meets work in flight; every record is there before its wave's faults are."""
    await until(lambda: worker.consume.state().partitions, PATIENCE_S)
    for wave in range(WAVES):
        made = events(answers(ANSWERS_PER_WAVE, start=wave * ANSWERS_PER_WAVE))
        for partition in range(PARTITIONS):
            await produce(cluster, settings.kafka.answers_topic, made[partition::PARTITIONS], partition=partition)
        for api, codes in FAULTS.items():
            cluster.fail(api, *chances.sample(codes, k=2))
        cluster.coordinate(settings.kafka.group_id, chances.randint(1, NODES))
        node = chances.randint(1, NODES)
        cluster.stop(node)
        await asyncio.sleep(chances.random() * 0.2)
        cluster.start(node)
        await until_equal(partial(stored, settings, "answers"), (wave + 1) * ANSWERS_PER_WAVE, PATIENCE_S)
    for api in FAULTS:
        cluster.heal(api)


async def stored(settings: Settings, table: str) -> int:
    count: int = await value(settings.postgres.dsn.get_secret_value(), f"SELECT count(*) FROM {table}")  # noqa: S608  # a name of our own
    return count


async def published_ids(cluster: MockKafka, kafka: KafkaSettings) -> Counter[bytes]:
    """How often each event was published, by its id: more than once where an acknowledgement was lost."""
    ends = [await committed(cluster, kafka.group_id, kafka.answers_topic, number) for number in range(PARTITIONS)]
    assert ends == [WAVES * ANSWERS_PER_WAVE // PARTITIONS] * PARTITIONS
    records = await everything_in(cluster, kafka.attributions_topic, partitions=PARTITIONS)
    return Counter(dict(record.headers)["ce_id"] for record in records)


async def test_topics_of_a_broker_that_describes_none_are_checked_as_far_as_it_tells(
    cluster: MockKafka, settings_for: SettingsFor
) -> None:
    """The mock knows no DescribeConfigs, as some brokers and some principals do not."""
    kafka = settings_for(partitions=PARTITIONS)
    cluster.create_topic(kafka.answers_topic, partitions=PARTITIONS)
    cluster.create_topic(kafka.attributions_topic, partitions=1)
    with pytest.raises(FatalError, match=r"answers\.dead-letter: does not exist"):
        await check_topics(kafka)
    cluster.create_topic(kafka.dead_letter_topic, partitions=PARTITIONS)

    assert [report.differences for report in await check_topics(kafka)] == [
        (),
        ("partitions is 1, settings say 3",),
        (),
    ]
