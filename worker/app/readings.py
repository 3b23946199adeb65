"""What the worker's parts know of themselves, as metrics: read when somebody asks, and free in between."""

from collections.abc import Iterable, Iterator, Mapping

from worker.adapters.postgres.watch import Seen
from worker.consume import ConsumeState
from worker.core.offsets import PartitionState
from worker.core.records import TopicPartition
from worker.limiter import Limiter
from worker.telemetry import Metric, Position, Reading, WorkerState, one_hot


def worker_state(state: ConsumeState, *, outage_waiting: int) -> WorkerState:
    """What a worker is doing, in one word."""
    if state.ending:
        return WorkerState.ENDING
    if not state.rebalances:
        return WorkerState.STARTING
    return WorkerState.WAITING if outage_waiting else WorkerState.RUNNING


def read_consume(state: ConsumeState) -> Iterator[Reading]:
    """Partitions, and what is in flight."""
    yield Reading(Metric.POLL_LOOP_AGE, state.loop_age_s)
    yield Reading(Metric.READS_STARVED, state.starved_s)
    yield Reading(Metric.OLDEST_UNFINISHED, state.oldest_unfinished_age_s)
    yield Reading(Metric.IN_FLIGHT_RECORDS, state.records_waiting, ("waiting",))
    yield Reading(Metric.IN_FLIGHT_RECORDS, state.records_running, ("running",))
    yield Reading(Metric.IN_FLIGHT_BYTES, state.bytes_held)
    yield Reading(Metric.ASSIGNED_PARTITIONS, len(state.partitions))
    yield Reading(Metric.PAUSED_PARTITIONS, len(state.partitions) if state.paused else 0)
    yield Reading(Metric.RECORDS_FETCHED, state.records_fetched)
    yield Reading(Metric.REBALANCES, state.rebalances)
    yield Reading(Metric.COMMIT_FAILURES, state.commits_failed)
    for topic_partition, partition in state.partitions.items():
        yield from _read_partition(topic_partition, partition, state.lag)


def _read_partition(
    topic_partition: TopicPartition, partition: PartitionState, lag: Mapping[TopicPartition, int | None]
) -> Iterator[Reading]:
    number = str(topic_partition.partition)
    positions = {
        Position.SEEN: _next(partition.fetched),
        Position.COMPLETED: _next(partition.completed),
        Position.COMMITTABLE: partition.committable,
        Position.COMMITTED: partition.committed,
    }
    for position, offset in positions.items():
        if offset is not None:
            yield Reading(Metric.PARTITION_OFFSET, offset, (number, position.value))
    unfetched = lag.get(topic_partition)
    if unfetched is not None:
        yield Reading(Metric.PARTITION_LAG, unfetched + partition.unfinished, (number,))


def _next(offset: int | None) -> int | None:
    return None if offset is None else offset + 1


def read_limiter(provider: str, model: str, limiter: Limiter) -> Iterator[Reading]:
    """One provider's and model's waiting line, speed and circuit breaker."""
    state = limiter.state()
    account, labels = state.account, (provider, model)
    yield Reading(Metric.LIMITER_WAITING, state.waiting, labels)
    yield Reading(Metric.LIMITER_IN_FLIGHT, account.calls_in_flight, labels)
    yield Reading(Metric.LIMITER_SPEED, account.speed, labels)
    yield Reading(Metric.LIMITER_PAUSED, account.paused_s, labels)
    for dimension, available in account.available.items():
        yield Reading(Metric.LIMITER_AVAILABLE, available, (*labels, dimension.value))
    yield from one_hot(Metric.BREAKER_STATE, account.breaker.value, *labels)


def read_tables(seen: Seen) -> Iterator[Reading]:
    """What the last look into the tables saw."""
    recent = seen.recent
    yield Reading(Metric.OUTBOX_PENDING, seen.outbox_pending)
    yield Reading(Metric.OUTBOX_AGE, seen.outbox_age_s)
    yield Reading(Metric.DEAD_LETTERS_IN_A_ROW, recent.consecutive)
    yield Reading(Metric.DEAD_LETTER_RATIO, recent.dead_letters / recent.outcomes if recent.outcomes else 0.0)
    for period, left_usd in seen.budget_left_usd.items():
        yield Reading(Metric.BUDGET_LEFT, float(left_usd), (period.value,))


def read_retries(retries: Mapping[str, int]) -> Iterable[Reading]:
    """Transactions done again."""
    return [Reading(Metric.DATABASE_RETRIES, count, (sqlstate,)) for sqlstate, count in retries.items()]
