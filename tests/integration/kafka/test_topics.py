"""Topics made, compared, and never altered."""

import pytest

from tests.integration.kafka.conftest import SettingsFor
from tests.support.kafka import admin_of, create_topic
from worker.adapters.kafka.topics import check_topics, ensure_topics
from worker.embedded.broker import Broker
from worker.errors import FatalError, UnavailableError
from worker.settings import KafkaSettings


def topics_of(settings: KafkaSettings) -> list[str]:
    return [settings.answers_topic, settings.attributions_topic, settings.dead_letter_topic]


async def test_missing_topics_are_made_and_made_once(any_broker: Broker, settings_for: SettingsFor) -> None:
    settings = settings_for(any_broker, partitions=3)

    made = await ensure_topics(settings)
    again = await ensure_topics(settings)

    assert [(report.topic, report.created, report.differences) for report in made] == [
        (topic, True, ()) for topic in topics_of(settings)
    ]
    assert [(report.created, report.differences) for report in again] == [(False, ())] * 3
    assert [report.differences for report in await check_topics(settings)] == [()] * 3


async def test_a_missing_topic_stops_the_check_and_is_not_made_by_it(
    any_broker: Broker, settings_for: SettingsFor
) -> None:
    settings = settings_for(any_broker)
    for _ in range(2):
        with pytest.raises(FatalError) as raised:
            await check_topics(settings)

        assert all(f"{topic}: does not exist" in str(raised.value) for topic in topics_of(settings))
        assert "`attribution-worker topics`" in str(raised.value)


@pytest.mark.kafka
async def test_a_topic_gets_its_partitions_retention_and_size(apache_kafka: Broker, settings_for: SettingsFor) -> None:
    settings = settings_for(apache_kafka, partitions=5, answers_retention_ms=123_456, message_bytes_max=2_000_000)
    await ensure_topics(settings)

    other = settings.model_copy(
        update={"partitions": 6, "answers_retention_ms": 99, "message_bytes_max": 1_000_000, "replication_factor": 3}
    )
    (answers, *_) = await ensure_topics(other)

    assert answers.differences == (
        "partitions is 5, settings say 6",
        "replication factor is 1, settings say 3",
        "retention.ms is 123456, settings say 99",
        "max.message.bytes is 2000000, settings say 1000000",
    )
    assert not answers.created
    async with admin_of(apache_kafka) as admin:
        (described,) = await admin.describe_topics([settings.answers_topic])
    assert len(described["partitions"]) == 5


@pytest.mark.kafka
async def test_harmless_differences_do_not_stop_the_check(apache_kafka: Broker, settings_for: SettingsFor) -> None:
    settings = settings_for(apache_kafka, partitions=1)
    await ensure_topics(settings)

    reports = await check_topics(settings.model_copy(update={"partitions": 2}))

    assert [report.differences for report in reports] == [("partitions is 1, settings say 2",)] * 3


@pytest.mark.kafka
async def test_an_outgoing_topic_that_refuses_our_messages_stops_the_check(
    apache_kafka: Broker, settings_for: SettingsFor
) -> None:
    settings = settings_for(apache_kafka)
    await create_topic(apache_kafka, settings.attributions_topic, configs={"max.message.bytes": "1000"})
    await ensure_topics(settings)

    with pytest.raises(FatalError, match=rf"{settings.attributions_topic}: .*max\.message\.bytes is 1000, settings"):
        await check_topics(settings)


@pytest.mark.kafka
async def test_a_topic_that_the_broker_refuses_is_named(apache_kafka: Broker, settings_for: SettingsFor) -> None:
    settings = settings_for(apache_kafka, replication_factor=3)

    with pytest.raises(FatalError, match=f"{settings.answers_topic} cannot be made: InvalidReplicationFactorError"):
        await ensure_topics(settings)


async def test_without_a_broker_topics_are_unavailable() -> None:
    nobody = KafkaSettings(bootstrap_servers="127.0.0.1:1")

    with pytest.raises(UnavailableError, match="making topics"):
        await ensure_topics(nobody)
    with pytest.raises(UnavailableError, match="checking topics"):
        await check_topics(nobody)
