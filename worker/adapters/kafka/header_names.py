"""Records that aiokafka cannot read, as a header's name is not UTF-8: read all the same, by its slower reader.

Kafka asks for UTF-8, and brokers do not look. aiokafka raises at such a record, at every try, for ever: one of them,
from a producer that writes names as bytes, would stop every worker of its partition (the kind of aiokafka#744). Private
parts of the client, as it has no other way.
"""

from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy

from worker.core.records import TopicPartition
from worker.telemetry import log

KEEPS_HEADERS_SINCE_MAGIC = 2


class _Part(bytearray):
    """Bytes of a record; as a name, with U+FFFD for what is no UTF-8."""

    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, errors)


class _Whole(bytearray):
    """Uncompressed records, cut into such parts."""

    def __getitem__(self, at: Any) -> Any:
        part = super().__getitem__(at)
        return _Part(part) if isinstance(part, bytearray) else part


class _AnyNames(_DefaultRecordBatchPy):  # type: ignore[misc]  # aiokafka ships no types
    """aiokafka's reader in Python, which unlike the compiled one can be given such bytes."""

    def __iter__(self) -> "_AnyNames":
        super().__iter__()
        self._buffer: bytearray = _Whole(self._buffer)
        return self


class AnyNamesRecords(_MemoryRecordsPy):  # type: ignore[misc]  # aiokafka ships no types
    """What a fetch brought, batch by batch."""

    def next_batch(self, *limits: int) -> Any:
        ahead = self._next_slice
        batch = super().next_batch(*limits)
        has_headers = batch is not None and ahead[self.MAGIC_OFFSET] >= KEEPS_HEADERS_SINCE_MAGIC
        return _AnyNames(ahead) if has_headers else batch


async def read_on(consumer: AIOKafkaConsumer, positions: Mapping[TopicPartition, int]) -> None:
    """Go back to `positions`, what has been handed out, and from there read any name; in all consumers from now on.

    Where there is no position nothing has been handed out since the assignment, which began at the committed offset.
    Nothing may be read before it has succeeded: of what was fetched before, records are missing.
    """
    log.warning("header_name.unreadable", partitions=len(consumer.assignment()))
    fetcher.MemoryRecords = AnyNamesRecords
    for partition in consumer.assignment():
        position = positions.get(TopicPartition(*partition))
        offset = await consumer.committed(partition) if position is None else position
        if offset is None:
            await consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, offset)
