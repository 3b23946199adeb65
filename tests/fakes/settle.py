"""A `settle` that does what the test says, when it says so."""

import asyncio

from worker.core.records import Record, TopicPartition

Place = tuple[int, int]
"""Partition and offset."""


class HeldSettle:
    """Records stay running until released, failed, or let through; what it saw and the most it ran are visible."""

    def __init__(self, *, open_from_the_start: bool = False) -> None:
        self.started: list[Place] = []
        self.settled: list[Place] = []
        self.cancelled: list[Place] = []
        self.running: dict[Place, list[asyncio.Future[None]]] = {}
        self.records_peak = 0
        self.bytes_peak = 0
        self._records = 0
        self._bytes = 0
        self._open = open_from_the_start

    async def __call__(self, record: Record) -> None:
        place = (record.partition, record.offset)
        self.started.append(place)
        if self._open:
            self.settled.append(place)
            return
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.running.setdefault(place, []).append(held)
        self._records += 1
        self._bytes += record.size_bytes
        self.records_peak = max(self.records_peak, self._records)
        self.bytes_peak = max(self.bytes_peak, self._bytes)
        try:
            await held
        except asyncio.CancelledError:
            self.cancelled.append(place)
            raise
        finally:
            self._records -= 1
            self._bytes -= record.size_bytes
            if held in self.running.get(place, []):
                self._forget(place, held)
        self.settled.append(place)

    def take(self, place: Place) -> asyncio.Future[None]:
        """The first of the deliveries that run there, for the test to end."""
        held = self.running[place][0]
        self._forget(place, held)
        return held

    def release(self, *places: Place) -> None:
        for place in places:
            self.take(place).set_result(None)

    def release_all(self) -> None:
        while self.running:
            self.release(*self.running)

    def fail(self, place: Place, error: BaseException) -> None:
        self.take(place).set_exception(error)

    def let_everything_through(self) -> None:
        self._open = True
        self.release_all()

    def settled_of(self, topic_partition: TopicPartition) -> set[int]:
        return {offset for partition, offset in self.settled if partition == topic_partition.partition}

    def _forget(self, place: Place, held: asyncio.Future[None]) -> None:
        self.running[place].remove(held)
        if not self.running[place]:
            del self.running[place]
