import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from worker.core.records import OutboundMessage
from worker.errors import FatalError, UnavailableError
from worker.ports import OutboxRow
from worker.relay import Relay
from worker.settings import OutboxSettings
from worker.telemetry import Telemetry


class Outbox:
    """Rows in a list; a claim left by an exception gives them back."""

    def __init__(self, row_count: int) -> None:
        self.rows = [OutboxRow(index, OutboundMessage("t", b"k", str(index).encode())) for index in range(row_count)]

    @asynccontextmanager
    async def claim(self, rows_max: int) -> AsyncIterator[Sequence[OutboxRow]]:
        claimed = self.rows[:rows_max]
        yield claimed
        self.rows = self.rows[len(claimed) :]

    async def pending(self) -> int:
        return len(self.rows)


class Broker:
    """Acknowledged messages in a list, after failing with each of `failures` in turn."""

    def __init__(self, failures: Sequence[Exception] = ()) -> None:
        self.failures = list(failures)
        self.published: list[bytes | None] = []

    async def publish(self, messages: Sequence[OutboundMessage]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.published += [message.value for message in messages]


def relay_between(outbox: Outbox, broker: Broker, *, publish_timeout_s: float = 30) -> Relay:
    async def no_pause(_: float) -> None: ...

    settings = OutboxSettings(batch_max=10, publish_timeout_s=publish_timeout_s)
    return Relay(outbox=outbox, publisher=broker, settings=settings, telemetry=Telemetry(), sleep=no_pause)


async def test_everything_stored_is_published_once_and_in_order() -> None:
    outbox, broker = Outbox(25), Broker()
    await relay_between(outbox, broker).drain()
    assert broker.published == [str(index).encode() for index in range(25)]
    assert outbox.rows == []


async def test_a_broker_outage_keeps_every_row_until_it_is_acknowledged() -> None:
    outbox, broker = Outbox(5), Broker([UnavailableError("broker down")] * 7)
    await relay_between(outbox, broker).drain()
    assert len(broker.published) == 5
    assert outbox.rows == []


async def test_a_broker_that_never_answers_is_an_outage_and_not_the_end_of_the_worker() -> None:
    class SilentOnce(Broker):
        silent = True

        async def publish(self, messages: Sequence[OutboundMessage]) -> None:
            if self.silent:
                self.silent = False
                await asyncio.Event().wait()
            await super().publish(messages)

    outbox, broker = Outbox(3), SilentOnce()
    await relay_between(outbox, broker, publish_timeout_s=0.01).drain()
    assert len(broker.published) == 3


async def test_a_refusal_for_good_stops_the_relay_and_loses_nothing() -> None:
    outbox, broker = Outbox(5), Broker([FatalError("not authorised to write")])
    with pytest.raises(FatalError):
        await relay_between(outbox, broker).drain()
    assert len(outbox.rows) == 5
