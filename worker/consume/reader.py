"""Reading the stream through outages, and staying a member of the group while nothing may be read."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

from worker.core.records import Record, TopicPartition
from worker.errors import UnavailableError
from worker.ports import RebalanceListener, RecordStream
from worker.settings import KafkaSettings
from worker.telemetry import log

T = TypeVar("T")


class Reader:
    """Polls a stream. Every method waits through outages of the broker, for as long as they take.

    Not polling holds the stream back by itself, and costs nothing. Pausing throws away what the client has fetched
    ahead, so partitions are paused only where polling must go on without reading.
    """

    def __init__(
        self, stream: RecordStream, kafka: KafkaSettings, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._kafka = kafka
        self._monotonic = monotonic
        self._last_poll_s = monotonic()
        self._turned_s = monotonic()
        self._starved_since_s: float | None = None
        self.paused = False

    @property
    def last_poll_age_s(self) -> float:
        return self._monotonic() - self._last_poll_s

    @property
    def loop_age_s(self) -> float:
        """Since the loop around this reader last turned, or looked again at a broker that is down."""
        return self._monotonic() - self._turned_s

    @property
    def starved_s(self) -> float:
        """For how long reads have given nothing although the stream says that there is something."""
        return 0.0 if self._starved_since_s is None else self._monotonic() - self._starved_since_s

    def turned(self) -> None:
        """The loop around this reader turns."""
        self._turned_s = self._monotonic()

    @property
    def must_poll(self) -> bool:
        """Whether the group would soon miss us."""
        return self.last_poll_age_s * 1000 > self._kafka.max_poll_interval_ms / 3

    async def start(self, listener: RebalanceListener) -> None:
        await self._through_outages(lambda: self._stream.start(listener))
        self._last_poll_s = self._monotonic()

    async def read(self, records_max: int) -> Sequence[Record]:
        """Resumes what was paused; waits at most one poll timeout."""
        if self.paused:
            self.paused = False
            self._stream.resume(self._stream.assignment())
        records = await self._poll(records_max, self._kafka.poll_timeout_ms)
        if records or not any(self._stream.lag().values()):
            self._starved_since_s = None
        elif self._starved_since_s is None:
            self._starved_since_s = self._last_poll_s
        return records

    async def poll_paused(self) -> Sequence[Record]:
        """Nothing, or at most one record of a partition that came in this very moment."""
        self._starved_since_s = None
        if not self.paused:
            self.paused = True
            self._stream.pause(self._stream.assignment())
        return await self._poll(1, 0)

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        if self.paused:
            # A rebalance forgets which partitions were paused.
            self._stream.pause(partitions)

    def lag(self) -> Mapping[TopicPartition, int | None]:
        """Records not yet fetched; empty before the group is joined and after it is left."""
        try:
            return self._stream.lag()
        except UnavailableError:
            return {}

    def nothing_left(self) -> bool:
        """Whether the lag of every assigned partition is known, and none."""
        return all(lag == 0 for lag in self._stream.lag().values())

    async def _poll(self, records_max: int, timeout_ms: int) -> Sequence[Record]:
        records = await self._through_outages(
            lambda: self._stream.fetch(records_max=records_max, timeout_ms=timeout_ms)
        )
        self._last_poll_s = self._monotonic()
        return records

    async def _through_outages(self, call: Callable[[], Awaitable[T]]) -> T:
        tries = 0
        while True:
            try:
                return await call()
            except UnavailableError as error:
                tries += 1
                self.turned()
                self._starved_since_s = None
                log.warning("stream.unavailable", problem=str(error), tries=tries)
                await asyncio.sleep(error.retry_after_s or self._kafka.outage_backoff_ms / 1000)
