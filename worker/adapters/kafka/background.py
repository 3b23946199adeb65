"""What an aiokafka consumer does in the background, and may cease to do without a word: watched, taken up, ended.

Private parts of the client, as it has no other way to ask.
"""

import asyncio

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from worker.adapters.kafka.connection import close_in_time
from worker.errors import FatalError


def keep_alive(consumer: AIOKafkaConsumer) -> None:
    """For every poll of a consumer.

    Raises:
        FatalError: a task without which nothing is read has ended (aiokafka#764, #983).
    """
    fetching, coordinating = consumer._fetcher._fetch_task, consumer._coordinator._coordination_task  # noqa: SLF001  # see above
    if fetching.done() or coordinating.done():
        raise FatalError("the Kafka client's background task has ended; restart the worker")
    _restart_failed(consumer)


def _restart_failed(consumer: AIOKafkaConsumer) -> None:
    """One answer with an error code that aiokafka does not expect there ends these two for good.

    Without heartbeats the group forgets us, and without the look-up of committed offsets nothing is read, although
    the broker may be well again a moment later. The error itself comes out of the poll.
    """
    coordinator = consumer._coordinator  # noqa: SLF001  # see above
    if _has_failed(coordinator._heartbeat_task):  # noqa: SLF001  # see above
        coordinator._heartbeat_task = None  # noqa: SLF001  # else it would not be started
        coordinator._start_heartbeat_task()  # noqa: SLF001  # see above
    if _has_failed(coordinator._commit_refresh_task):  # noqa: SLF001  # see above
        assignment = consumer._subscription.subscription.assignment  # noqa: SLF001  # see above
        if assignment is not None:
            coordinator.start_commit_offsets_refresh_task(assignment)


def _has_failed(task: "asyncio.Task[None] | None") -> bool:
    return task is not None and task.done() and not task.cancelled() and task.exception() is not None


async def require_topic(consumer: AIOKafkaConsumer, topic: str) -> None:
    """For every poll of a consumer: the cluster is looked at again while it shows no such topic.

    One look that did not show it, as at a broker that has just started, takes all partitions from all members if it
    was the leader's. aiokafka itself looks again only after minutes.

    Raises:
        KafkaError: what the cluster says of the topic.
    """
    if consumer.partitions_for_topic(topic):
        return
    await consumer._client.force_metadata_update()  # noqa: SLF001  # see above
    if topic in consumer._client.cluster.unauthorized_topics:  # noqa: SLF001  # see above
        raise TopicAuthorizationFailedError(topic)
    if not consumer.partitions_for_topic(topic):
        raise UnknownTopicOrPartitionError(topic)


async def close_consumer(consumer: AIOKafkaConsumer) -> None:
    """Leave the group and close; ends also when the broker is gone."""
    if await close_in_time(consumer.stop(), "consumer"):
        return
    # Cut off in its good-bye to the group, it has not come to its other parts.
    parts = (consumer._coordinator, consumer._fetcher, consumer._client)  # noqa: SLF001  # see above
    for part in parts:
        if part is not None:
            await close_in_time(part.close(), type(part).__name__)
