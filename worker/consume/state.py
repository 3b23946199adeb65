"""What a consumer is doing, for metrics and health."""

from collections.abc import Mapping
from dataclasses import dataclass

from worker.core.offsets import PartitionState
from worker.core.records import TopicPartition


@dataclass(frozen=True, slots=True)
class ConsumeState:
    """A snapshot for metrics; ages in seconds."""

    records_running: int
    records_waiting: int
    bytes_held: int
    records_fetched: int
    records_settled: int
    commits_failed: int
    rebalances: int
    paused: bool
    ending: bool
    last_poll_age_s: float
    loop_age_s: float
    starved_s: float
    oldest_unfinished_age_s: float
    partitions: Mapping[TopicPartition, PartitionState]
    lag: Mapping[TopicPartition, int | None]
    """Records not yet fetched; None until a first fetch told it."""
