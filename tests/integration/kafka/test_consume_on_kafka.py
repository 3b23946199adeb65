"""`Consume` on a real Kafka: what must hold through restarts, outages and rebalances."""

import asyncio
from collections.abc import Sequence

import pytest
from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from tests.integration.kafka.conftest import SettingsFor
from tests.integration.kafka.ledger import Ledger, Member, member_of
from tests.support.conditions import until
from tests.support.kafka import admin_of, committed, create_topic, produce, producer_of
from worker.embedded.apache_kafka import ApacheKafka
from worker.embedded.broker import Broker
from worker.errors import FatalError
from worker.settings import KafkaSettings

pytestmark = pytest.mark.kafka

PARTITIONS = 6
PATIENCE_S = 60.0


async def fill(broker: Broker, settings: KafkaSettings, records_per_partition: int, pause_s: float = 0.0) -> None:
    async with producer_of(broker) as producer:
        for number in range(records_per_partition):
            for partition in range(PARTITIONS):
                await producer.send(settings.answers_topic, b"%d" % number, partition=partition)
            await asyncio.sleep(pause_s)
        await producer.flush()


async def all_committed(broker: Broker, settings: KafkaSettings) -> Sequence[int | None]:
    return [await committed(broker, settings.group_id, settings.answers_topic, number) for number in range(PARTITIONS)]


async def test_a_rolling_restart_settles_every_record_and_never_commits_past_one(
    apache_kafka: Broker, settings_for: SettingsFor
) -> None:
    """parallel-consumer#826, zio-kafka#590, alpakka-kafka#755: records lost or skipped around rebalances."""
    settings = settings_for(apache_kafka)
    await create_topic(apache_kafka, settings.answers_topic, partitions=PARTITIONS)
    ledger = Ledger()
    total = 150 * PARTITIONS
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(fill(apache_kafka, settings, 150, pause_s=0.02))
        async with member_of(settings, ledger) as first:
            await until(lambda: first.partitions)
            async with member_of(settings, ledger) as second:
                await until(lambda: len(second.partitions) == PARTITIONS // 2)
                await until(lambda: len(ledger.settled) > total / 4)
            await until(lambda: len(first.partitions) == PARTITIONS, PATIENCE_S)
            async with member_of(settings, ledger) as third:
                await until(lambda: third.partitions, PATIENCE_S)
                first.stop.set()
                await until(lambda: len(third.partitions) == PARTITIONS, PATIENCE_S)
                await until(lambda: len(ledger.settled) == total, PATIENCE_S)

    assert ledger.committed_too_far == []
    assert set(ledger.settled) == {(partition, offset) for partition in range(PARTITIONS) for offset in range(150)}
    assert await all_committed(apache_kafka, settings) == [150] * PARTITIONS
    # Every member drained before it left, so that nothing was settled again.
    assert set(ledger.settled.values()) == {1}


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
async def test_a_broker_restart_in_mid_stream_loses_and_skips_nothing(
    stoppable_kafka: ApacheKafka, settings_for: SettingsFor, *, crash: bool
) -> None:
    settings = settings_for(stoppable_kafka)
    await create_topic(stoppable_kafka, settings.answers_topic, partitions=PARTITIONS)
    await fill(stoppable_kafka, settings, 200)
    ledger = Ledger()
    total = 200 * PARTITIONS
    async with member_of(settings, ledger):
        await until(lambda: len(ledger.settled) > total / 4)
        await asyncio.to_thread(stoppable_kafka.kill if crash else stoppable_kafka.stop)
        await asyncio.to_thread(stoppable_kafka.start)
        await until(lambda: len(ledger.settled) == total, PATIENCE_S)

    assert ledger.committed_too_far == []
    assert await all_committed(stoppable_kafka, settings) == [200] * PARTITIONS


async def test_committed_offsets_out_of_range_stop_the_worker(apache_kafka: Broker, settings_for: SettingsFor) -> None:
    """A silent jump would lose every answer that retention took before it was read."""
    settings = settings_for(apache_kafka)
    await create_topic(apache_kafka, settings.answers_topic, partitions=PARTITIONS)
    await fill(apache_kafka, settings, 10)
    async with member_of(settings, Ledger()) as member:
        await until(lambda: member.consume.state().records_settled == 10 * PARTITIONS, PATIENCE_S)
    await fill(apache_kafka, settings, 10)
    async with admin_of(apache_kafka) as admin:
        await delete_before(admin, settings.answers_topic, partition=2, offset=15)

    ledger = Ledger()
    with pytest.raises(FatalError, match=r"OffsetOutOfRange.*partition=2"):
        await Member(settings, ledger).consume.run(asyncio.Event())

    assert await committed(apache_kafka, settings.group_id, settings.answers_topic, 2) == 10
    assert all(partition != 2 for partition, _ in ledger.settled)


async def test_a_new_group_starts_at_the_earliest_record_that_is_still_there(
    apache_kafka: Broker, settings_for: SettingsFor
) -> None:
    settings = settings_for(apache_kafka)
    await create_topic(apache_kafka, settings.answers_topic)
    await produce(apache_kafka, settings.answers_topic, [b"x"] * 10)
    async with admin_of(apache_kafka) as admin:
        await delete_before(admin, settings.answers_topic, partition=0, offset=4)
    ledger = Ledger()

    await Member(settings, ledger).consume.run(asyncio.Event(), until_drained=True)

    assert set(ledger.settled) == {(0, offset) for offset in range(4, 10)}


async def delete_before(admin: AIOKafkaAdminClient, topic: str, *, partition: int, offset: int) -> None:
    await admin.delete_records({KafkaTopicPartition(topic, partition): RecordsToDelete(before_offset=offset)})


async def test_a_restart_of_a_static_member_moves_nothing(apache_kafka: Broker, settings_for: SettingsFor) -> None:
    settings = settings_for(apache_kafka, session_timeout_ms=20_000)
    await create_topic(apache_kafka, settings.answers_topic, partitions=PARTITIONS)
    ledger = Ledger()
    one, two = (settings.model_copy(update={"group_instance_id": name}) for name in ("worker-1", "worker-2"))
    async with member_of(one, ledger) as first:
        await until(lambda: first.partitions)
        async with member_of(two, ledger) as second:
            await until(lambda: len(second.partitions) == len(first.partitions) == PARTITIONS // 2)
            before, assigned = first.consume.state().partitions, second.partitions

        async with member_of(two, ledger) as second_again:
            await until(lambda: second_again.partitions)
            await fill(apache_kafka, settings, 5)
            await until(lambda: len(ledger.settled) == 5 * PARTITIONS, PATIENCE_S)

            assert second_again.partitions == assigned
            after = first.consume.state().partitions
            assert {partition: state.epoch for partition, state in after.items()} == {
                partition: state.epoch for partition, state in before.items()
            }


async def test_a_drained_run_ends_also_where_transactions_left_records_that_nobody_sees(
    apache_kafka: Broker, settings_for: SettingsFor
) -> None:
    """faust#401: aborted records and control records are holes in what is delivered."""
    settings = settings_for(apache_kafka)
    await create_topic(apache_kafka, settings.answers_topic)
    async with producer_of(apache_kafka, transactional_id=settings.group_id) as producer:
        for value, kept in ((b"kept", True), (b"aborted", False), (b"kept too", True), (b"aborted too", False)):
            await producer.begin_transaction()
            await producer.send_and_wait(settings.answers_topic, value, partition=0)
            await (producer.commit_transaction() if kept else producer.abort_transaction())
    ledger = Ledger()

    await Member(settings, ledger).consume.run(asyncio.Event(), until_drained=True)

    assert len(ledger.settled) == 2


async def test_an_empty_topic_is_drained(apache_kafka: Broker, settings_for: SettingsFor) -> None:
    settings = settings_for(apache_kafka)
    await create_topic(apache_kafka, settings.answers_topic, partitions=PARTITIONS)

    await Member(settings, Ledger()).consume.run(asyncio.Event(), until_drained=True)

    assert await all_committed(apache_kafka, settings) == [None] * PARTITIONS


async def test_a_missing_topic_is_named_with_the_command_that_makes_it(
    apache_kafka: Broker, settings_for: SettingsFor
) -> None:
    settings = settings_for(apache_kafka, request_timeout_ms=1_000)

    with pytest.raises(FatalError, match=r"does not exist: run `attribution-worker topics`"):
        await Member(settings, Ledger()).consume.run(asyncio.Event())


async def test_a_worker_whose_broker_is_gone_stops_all_the_same(
    stoppable_kafka: ApacheKafka, settings_for: SettingsFor
) -> None:
    """aiokafka#659, #88: a consumer could not be closed while the brokers were down."""
    settings = settings_for(stoppable_kafka, commit_timeout_ms=500)
    await create_topic(stoppable_kafka, settings.answers_topic)
    await produce(stoppable_kafka, settings.answers_topic, [b"x"])
    ledger = Ledger(pause_max_s=0)
    async with member_of(settings, ledger):
        await until(lambda: ledger.settled)
        await asyncio.to_thread(stoppable_kafka.kill)
    await asyncio.to_thread(stoppable_kafka.start)

    assert set(ledger.settled) == {(0, 0)}


async def test_a_worker_that_never_reached_its_broker_stops(settings_for: SettingsFor, apache_kafka: Broker) -> None:
    settings = settings_for(apache_kafka, bootstrap_servers="127.0.0.1:1")
    async with member_of(settings, Ledger()) as member:
        await asyncio.sleep(0)

    assert member.consume.state().records_fetched == 0


async def test_a_record_larger_than_a_fetch_is_read(apache_kafka: Broker, settings_for: SettingsFor) -> None:
    """logstash-input-kafka#285, kafka-python#1232: a partition stuck on one oversized record."""
    settings = settings_for(apache_kafka, max_partition_fetch_bytes=1_024, fetch_max_bytes=1_024)
    await create_topic(apache_kafka, settings.answers_topic)
    await produce(apache_kafka, settings.answers_topic, [b"small", b"x" * 500_000, b"small"])
    ledger = Ledger()

    await Member(settings, ledger).consume.run(asyncio.Event(), until_drained=True)

    assert set(ledger.settled) == {(0, 0), (0, 1), (0, 2)}
