"""Reading: fetches that fail, nodes that stand still or are gone, leaders that move, and offsets that are gone."""

import asyncio
import random

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaTopicPartition

from tests.guarantees.mock_cluster.answers_topic import PATIENCE_S, AnswersTopic
from tests.guarantees.mock_cluster.conftest import NODES, SEEDS, SettingsFor
from tests.integration.kafka.ledger import Ledger, Member, member_of
from tests.support.conditions import until
from tests.support.mock_kafka import Api, Code, MockKafka
from worker.errors import FatalError

PASSING = [
    Code.CONNECTION_CLOSED,
    Code.UNKNOWN_SERVER_ERROR,
    Code.CORRUPT_MESSAGE,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.LEADER_NOT_AVAILABLE,
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.REQUEST_TIMED_OUT,
    Code.REPLICA_NOT_AVAILABLE,
    Code.KAFKA_STORAGE_ERROR,
    Code.FENCED_LEADER_EPOCH,
    Code.UNKNOWN_LEADER_EPOCH,
]


@pytest.mark.parametrize("code", PASSING, ids=lambda code: code.name)
async def test_a_fetch_that_fails_is_tried_again_where_it_was(
    cluster: MockKafka, answers: AnswersTopic, code: Code
) -> None:
    """aiokafka#1115: a consumer died of KafkaStorageError."""
    await answers.fill(10)
    ledger = Ledger(seed=code)
    async with member_of(answers.settings, ledger):
        await answers.prove(ledger)
        cluster.fail(Api.FETCH, *[code] * 4)
        await answers.fill(10)
        await answers.asked(Api.FETCH, 5)
        await answers.prove(ledger)
    assert set(ledger.settled.values()) == {1}


@pytest.mark.parametrize(
    "code",
    [Code.UNKNOWN_SERVER_ERROR, Code.NOT_LEADER_OR_FOLLOWER, Code.KAFKA_STORAGE_ERROR],
    ids=lambda code: code.name,
)
async def test_a_new_group_asks_for_the_start_of_the_log_until_it_is_told(
    cluster: MockKafka, answers: AnswersTopic, code: Code
) -> None:
    await answers.fill(10)
    cluster.fail(Api.LIST_OFFSETS, code, code)
    async with member_of(answers.settings, ledger := Ledger(seed=code)):
        await answers.prove(ledger)


async def test_a_topic_that_we_may_no_longer_read_stops_the_worker(cluster: MockKafka, answers: AnswersTopic) -> None:
    await answers.fill(10)
    cluster.fail(Api.FETCH, *[Code.TOPIC_AUTHORIZATION_FAILED] * NODES)
    with pytest.raises(FatalError, match="no access: TopicAuthorizationFailedError"):
        async with asyncio.timeout(PATIENCE_S):
            await Member(answers.settings, Ledger()).consume.run(asyncio.Event())


@pytest.mark.parametrize(
    "code", [Code.LEADER_NOT_AVAILABLE, Code.UNKNOWN_TOPIC_OR_PARTITION], ids=lambda code: code.name
)
async def test_a_topic_that_the_cluster_does_not_show_for_a_while_is_looked_for_and_read_on(
    cluster: MockKafka, answers: AnswersTopic, code: Code
) -> None:
    """One such look took all partitions from the group: nobody read until the client's next look, minutes on."""
    await answers.fill(10)
    async with member_of(answers.settings, ledger := Ledger(seed=code)) as member:
        await answers.prove(ledger)
        await answers.fill(10)
        hide_topic(cluster, answers, code)
        await until(lambda: not member.partitions, PATIENCE_S)
        cluster.refuse_topic(answers.settings.answers_topic, Code.NONE)
        await answers.prove(ledger)


async def test_a_topic_that_is_hidden_from_us_in_mid_stream_stops_the_worker(
    cluster: MockKafka, answers: AnswersTopic
) -> None:
    await answers.fill(10)
    ledger = Ledger()

    async def hide() -> None:
        await answers.prove(ledger)
        hide_topic(cluster, answers, Code.TOPIC_AUTHORIZATION_FAILED)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(hide())
        with pytest.raises(FatalError, match="reading answers: no access: TopicAuthorizationFailedError"):
            await Member(answers.settings, ledger).consume.run(asyncio.Event())


def hide_topic(cluster: MockKafka, answers: AnswersTopic, code: Code) -> None:
    """And bring the client to look."""
    cluster.refuse_topic(answers.settings.answers_topic, code)
    cluster.fail(Api.FETCH, *[Code.NOT_LEADER_OR_FOLLOWER] * NODES)


async def test_an_offset_out_of_range_in_mid_stream_stops_the_worker_and_skips_nothing(
    cluster: MockKafka, answers: AnswersTopic
) -> None:
    await answers.fill(10)
    ledger = Ledger()

    async def break_off() -> None:
        await answers.prove(ledger)
        cluster.fail(Api.FETCH, *[Code.OFFSET_OUT_OF_RANGE] * NODES)
        await answers.fill(10)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(break_off())
        with pytest.raises(FatalError, match="going on would skip records: OffsetOutOfRangeError"):
            await Member(answers.settings, ledger).consume.run(asyncio.Event())
    assert ledger.committed_too_far == []
    cluster.heal(Api.FETCH)

    async with member_of(answers.settings, ledger):
        await answers.prove(ledger)


async def test_retention_that_passed_the_committed_offset_stops_the_worker_each_time_it_is_started(
    cluster: MockKafka, answers: AnswersTopic
) -> None:
    await answers.fill(10)
    async with member_of(answers.settings, ledger := Ledger()):
        await answers.prove(ledger)
    await answers.fill(10)
    cluster.delete_records(answers.settings.answers_topic, 1, before=15)

    for _ in range(2):
        with pytest.raises(FatalError, match=r"OffsetOutOfRangeError.*partition=1\): 10"):
            async with asyncio.timeout(PATIENCE_S):
                await Member(answers.settings, ledger).consume.run(asyncio.Event())
        assert (await answers.committed())[1] == 10
    assert max(offset for partition, offset in ledger.settled if partition == 1) == 9


async def test_a_log_that_is_shorter_than_what_was_committed_stops_the_worker(
    cluster: MockKafka, answers: AnswersTopic
) -> None:
    """As after an unclean election: going on at the end would skip whatever is written up to there."""
    await answers.fill(10)
    await commit_from_outside(answers, partition=0, offset=100)
    with pytest.raises(FatalError, match=r"OffsetOutOfRangeError.*partition=0\): 100"):
        async with asyncio.timeout(PATIENCE_S):
            await Member(answers.settings, Ledger()).consume.run(asyncio.Event())
    assert (await answers.committed())[0] == 100


async def commit_from_outside(answers: AnswersTopic, *, partition: int, offset: int) -> None:
    settings = answers.settings
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers, group_id=settings.group_id, enable_auto_commit=False
    )
    await consumer.start()
    try:
        where = KafkaTopicPartition(settings.answers_topic, partition)
        consumer.assign([where])
        await consumer.commit({where: offset})
    finally:
        await consumer.stop()


async def test_a_slow_cluster_costs_time_and_no_membership(cluster: MockKafka, settings_for: SettingsFor) -> None:
    """aiokafka#848: what was slow was thrown out of the group, and worked on twice."""
    settings = settings_for(session_timeout_ms=1_050, commit_timeout_ms=2_000)
    answers = AnswersTopic(cluster, settings, partitions=2)
    await answers.fill(10)
    ledger = Ledger()
    async with member_of(settings, ledger) as member:
        await answers.prove(ledger)
        await answers.fill(10)
        cluster.slow(700)
        await until(lambda: set(ledger.settled) == answers.records, PATIENCE_S)
        await answers.asked(Api.HEARTBEAT, 2)
        cluster.slow(0)
        await answers.prove(ledger)

        assert member.consume.state().rebalances == 1
    assert set(ledger.settled.values()) == {1}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("drops_connections")
@pytest.mark.parametrize("seed", SEEDS)
async def test_nodes_that_go_and_come_back_cost_time_and_nothing_else(
    cluster: MockKafka, settings_for: SettingsFor, seed: int
) -> None:
    """aiokafka#1115, #659: brokers down in mid-stream."""
    answers = AnswersTopic(cluster, settings_for(), partitions=6)
    outages = random.Random(seed)
    ledger = Ledger(seed=seed)
    await answers.fill(10)
    async with member_of(answers.settings, ledger):
        for _ in range(3):
            await until(lambda: len(ledger.settled) >= len(answers.records) / 2, PATIENCE_S)
            node = outages.choice([-1, 1, 2, 3])
            cluster.stop(node)
            await asyncio.sleep(outages.random() * 0.1)
            cluster.start(node)
            await answers.fill(10)
        await answers.prove(ledger)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("drops_connections")
@pytest.mark.parametrize("seed", SEEDS[:1])
async def test_a_node_that_dies_leaves_its_partitions_and_its_groups_to_others(
    cluster: MockKafka, settings_for: SettingsFor, seed: int
) -> None:
    answers = AnswersTopic(cluster, settings_for(), partitions=6)
    settings, chances, ledger = answers.settings, random.Random(seed), Ledger(seed=seed)
    dying = chances.randint(1, NODES)
    others = [node for node in range(1, NODES + 1) if node != dying]
    cluster.coordinate(settings.group_id, dying)
    for partition in range(6):
        cluster.lead(settings.answers_topic, partition, chances.choice([dying, *others]))
    await answers.fill(20)
    async with member_of(settings, ledger) as member:
        await until(lambda: len(ledger.settled) > 20, PATIENCE_S)
        cluster.stop(dying)
        cluster.coordinate(settings.group_id, chances.choice(others))
        for partition in range(6):
            cluster.lead(settings.answers_topic, partition, chances.choice(others))
        await answers.fill(5)
        await answers.prove(ledger)

        assert member.consume.state().rebalances == 1
    assert set(ledger.settled.values()) == {1}


async def test_a_partition_without_a_leader_is_waited_for_and_holds_up_no_other(
    cluster: MockKafka, answers: AnswersTopic
) -> None:
    await answers.fill(10)
    ledger = Ledger()
    async with member_of(answers.settings, ledger):
        await answers.prove(ledger)
        await answers.fill(10)
        cluster.lead(answers.settings.answers_topic, 0, -1)
        await until(lambda: {(1, offset) for offset in range(20)} <= set(ledger.settled), PATIENCE_S)
        cluster.lead(answers.settings.answers_topic, 0, 1)
        await answers.prove(ledger)
