"""One worker's connections to the database all share: its ports, each request a message that may be lost."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from tests.fakes.budgets import FakeBudgets
from tests.guarantees.simulation.loop import OWNER
from tests.guarantees.simulation.truth import Claim, Truth, at_once
from tests.guarantees.simulation.world import Server, World
from worker.core.budget import Limits
from worker.core.model import AnswerKey, Attribution, Judgement, TenantId, Usage
from worker.core.outcome import Outcome
from worker.core.records import OutboundMessage, Record
from worker.errors import UnavailableError
from worker.llm_ports import CallIntent, CallResult, JournaledCall, Reservation
from worker.ports import DeadLetter, OutboxRow, SaveResult, SetAside, SettledAnswer

STARTED_AT = datetime(2026, 6, 1, 12, 57, tzinfo=UTC)
"""Three minutes before a budget's window ends."""


def now() -> datetime:
    return STARTED_AT + timedelta(seconds=asyncio.get_running_loop().time())


class SimulatedStore:
    """AttributionStore, JudgementCache, DeadLetterStore and OutboxStore of one worker."""

    def __init__(self, world: World, database: Server, truth: Truth) -> None:
        self._world = world
        self._database = database
        self._truth = truth

    async def find(self, key: AnswerKey, record: Record) -> SettledAnswer | SetAside | None:
        return await self._world.ask(self._database, lambda: at_once(self._truth.store.find(key, record)))

    async def save(
        self, attribution: Attribution, message: OutboundMessage, record: Record | None = None
    ) -> SaveResult:
        assert record is not None
        return await self._world.ask(self._database, lambda: self._truth.save(attribution, message, record))

    async def find_judgement(self, tenant: TenantId, reuse_hash: bytes) -> Judgement | None:
        def look() -> Judgement | None:
            return at_once(self._truth.store.find_judgement(tenant, reuse_hash))

        return await self._world.ask(self._database, look)

    async def save_dead_letter(self, dead_letter: DeadLetter, message: OutboundMessage) -> Outcome:
        return await self._world.ask(self._database, lambda: self._truth.save_dead_letter(dead_letter, message))

    async def pending(self) -> int:
        return await self._world.ask(self._database, lambda: len(self._truth.store.outbox))

    @asynccontextmanager
    async def claim(self, rows_max: int) -> AsyncIterator[Sequence[OutboxRow]]:
        process = OWNER.get()
        assert process is not None
        claim = Claim(process)
        try:
            yield await self._world.ask(self._database, lambda: self._truth.claim(claim, rows_max))
            await self._world.ask(self._database, lambda: self._truth.commit(claim))
        except BaseException:
            # The connection is closed, and its transaction rolled back if it is still there.
            self._world.later(self._world.travel_s(self._database), self._truth.give_up, claim)
            raise


class SimulatedJournal:
    """See `CallJournal`."""

    def __init__(self, world: World, database: Server, truth: Truth) -> None:
        self._world = world
        self._database = database
        self._truth = truth

    async def responses(self, call_key: bytes) -> Sequence[JournaledCall]:
        return await self._world.ask(self._database, lambda: self._truth.responses_to(call_key))

    async def open(self, intent: CallIntent) -> float | None:
        return await self._world.ask(self._database, lambda: self._truth.open(intent))

    async def close(self, call_id: UUID, result: CallResult) -> None:
        try:
            await self._world.ask(self._database, lambda: self._truth.close(call_id, result))
        except (asyncio.CancelledError, UnavailableError):
            self._truth.unheard_closes.add(call_id)
            raise
        self._truth.unheard_closes.discard(call_id)

    async def usage_of(self, key: AnswerKey) -> Usage:
        return await self._world.ask(self._database, lambda: at_once(self._truth.journal.usage_of(key)))

    async def sweep(self) -> int:
        return await self._world.ask(self._database, self._truth.sweep)


class SimulatedBudgets:
    """See `Budgets`: a worker's leases die with it, what they held stays held."""

    def __init__(self, world: World, database: Server, truth: Truth, limits: Limits) -> None:
        self._world = world
        self._database = database
        self._own = FakeBudgets(limits, books=truth.books, lease_fraction=Decimal("0.1"), now=now)

    async def reserve(self, tenant: TenantId, amount_usd: Decimal | None) -> Reservation:
        reserved: list[Reservation] = []
        wanted = [True]

        def reserve() -> Reservation:
            reservation = at_once(self._own.reserve(tenant, amount_usd))
            reserved.append(reservation)
            if not wanted:
                reservation.release()
            return reservation

        try:
            return await self._world.ask(self._database, reserve)
        except (asyncio.CancelledError, UnavailableError):
            wanted.clear()
            for reservation in reserved:
                reservation.release()
            raise
