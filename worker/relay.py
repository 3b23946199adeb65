"""From the outbox to Kafka: publishes what is stored, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from worker.errors import UnavailableError
from worker.ports import OutboxRow, OutboxStore, Publisher
from worker.settings import OutboxSettings
from worker.telemetry import Telemetry


class Relay:
    """Publishes outbox rows in order per key; many relays may work on one outbox.

    A row is deleted in the transaction that holds it locked, after the broker acknowledged it: a crash in between
    publishes it again under the same event id.
    """

    def __init__(
        self,
        *,
        outbox: OutboxStore,
        publisher: Publisher,
        settings: OutboxSettings,
        telemetry: Telemetry,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._outbox = outbox
        self._publisher = publisher
        self._settings = settings
        self._telemetry = telemetry
        self._sleep = sleep
        self._stored = asyncio.Event()

    def wake(self) -> None:
        """Something was stored: look now instead of at the next poll."""
        self._stored.set()

    async def run(self) -> None:
        """Publish until cancelled.

        Raises:
            FatalError: the broker or the database refuses for good.
        """
        while True:
            self._stored.clear()
            if not await self._publish_through_outages():
                await self._wait_for_more()

    async def drain(self) -> None:
        """Publish until the outbox has nothing that another relay does not already hold."""
        while await self._publish_through_outages():
            pass

    async def _wait_for_more(self) -> None:
        try:
            async with asyncio.timeout(self._settings.poll_interval_ms / 1000):
                await self._stored.wait()
        except TimeoutError:
            return

    async def _publish_through_outages(self) -> int:
        tries = 0
        while True:
            try:
                return await self._publish_batch()
            except UnavailableError as error:
                tries += 1
                self._telemetry.outage_waited(f"outbox: {error}", tries)
                await self._sleep(error.retry_after_s or self._settings.poll_interval_ms / 1000)

    async def _publish_batch(self) -> int:
        async with self._outbox.claim(self._settings.batch_max) as rows:
            if rows:
                await self._publish(rows)
        self._telemetry.messages_published(len(rows))
        return len(rows)

    async def _publish(self, rows: Sequence[OutboxRow]) -> None:
        """Publish under our own deadline, so that the rows' transaction ends whatever the broker does."""
        try:
            async with asyncio.timeout(self._settings.publish_timeout_s):
                await self._publisher.publish([row.message for row in rows])
        except TimeoutError:
            raise UnavailableError(f"no acknowledgement within {self._settings.publish_timeout_s:g} s") from None
