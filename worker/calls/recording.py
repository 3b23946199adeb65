"""The journal as a buyer needs it: what was sent is recorded, however long the database takes to come back."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import TypeVar
from uuid import UUID

from worker.errors import FatalError, UnavailableError
from worker.llm_ports import CallIntent, CallJournal, CallOutcome, CallResult
from worker.telemetry import Telemetry

T = TypeVar("T")

CLOSING_S_MAX = 3_600.0
"""A response that was paid for waits so long for the database; it is lost only if the process is."""

LOOK_AGAIN_S_MAX = 5.0

GIVING_UP_S_MAX = 2.0
"""How long a cancelled call takes, at most, to say that nobody need wait for it; its intent ends by itself anyway."""

OPEN_ELSEWHERE_S = 0.05
"""Between looks for an intent that is being recorded at this moment."""


class Recorder:
    """An intent before the call, its end after it."""

    def __init__(
        self,
        journal: CallJournal,
        telemetry: Telemetry,
        *,
        opening_s_max: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._journal = journal
        self._telemetry = telemetry
        self._opening_s_max = opening_s_max
        self._sleep = sleep
        self._monotonic = monotonic

    async def open(self, intent: CallIntent) -> float | None:
        """As the journal's; a commit of unknown outcome is looked after, so that no intent of ours blocks us.

        Raises:
            UnavailableError: the database is down, longer than is waited for here; nothing was sent yet.
        """
        try:
            return await self._through_outage(lambda: self._journal.open(intent), self._opening_s_max)
        except asyncio.CancelledError:
            result = CallResult(CallOutcome.FAILED, latency_ms=0, detail="cancelled before it was sent")
            await self.give_up(intent.call_id, result)
            raise

    async def close(self, call_id: UUID, result: CallResult) -> None:
        """As the journal's, waiting for a database that is down: what was paid for is not thrown away."""
        await self._through_outage(lambda: self._journal.close(call_id, result), CLOSING_S_MAX)

    async def give_up(self, call_id: UUID, result: CallResult) -> None:
        """For a call that was cancelled: recorded if that takes no time; raises nothing but another cancellation."""
        with suppress(TimeoutError, UnavailableError):
            async with asyncio.timeout(GIVING_UP_S_MAX):
                while True:
                    try:
                        return await self._journal.close(call_id, result)
                    except FatalError:
                        # Not on record: perhaps not yet, its intent being written beside this.
                        await asyncio.sleep(OPEN_ELSEWHERE_S)

    async def _through_outage(self, step: Callable[[], Awaitable[T]], outage_s_max: float) -> T:
        began_s = self._monotonic()
        for tries in count(1):
            try:
                return await step()
            except UnavailableError as error:
                if self._monotonic() - began_s >= outage_s_max:
                    raise
                self._telemetry.outage_waited(str(error), tries)
            await self._sleep(min(LOOK_AGAIN_S_MAX, 0.1 * 2.0 ** min(tries, 10)))
        raise AssertionError("unreachable: tries are counted without end")
