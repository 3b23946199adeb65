"""What a Kafka record is, in our own frozen types, so that only one adapter knows the client library."""

from dataclasses import dataclass
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


Headers = tuple[tuple[str, bytes | None], ...]
"""In order, names may repeat; Kafka knows headers without a value, too."""


@dataclass(frozen=True, slots=True)
class Record:
    """One consumed record, bytes untouched; `value is None` is a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size_bytes(self) -> int:
        """Bytes of key, value and headers: what back-pressure counts."""
        header_bytes = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + header_bytes


@dataclass(frozen=True, slots=True)
class OutboundMessage:
    """One record to publish: written to the outbox in the transaction of what it announces."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
