"""What an operator sees of a worker: its checks, its metrics, and the HTTP server that shows them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from worker.adapters.postgres.watch import Seen
from worker.app.readings import read_consume, read_retries, read_tables, worker_state
from worker.consume import ConsumeState
from worker.errors import WorkerError
from worker.http import Answering, Check, serve_http
from worker.settings import HttpSettings
from worker.telemetry import Metric, Reading, Telemetry, log, one_hot

LOOKS_MISSED_MAX = 3
"""A look is believed for that many intervals."""


@dataclass(frozen=True, slots=True)
class Look:
    """The last look at the database; a failed one has a `problem` and nothing seen."""

    at_s: float
    seen: Seen | None
    problem: str | None = None


class Observing:
    """One worker's face to its operator. The database is looked at regularly, however many ask and however often.

    `state` is the consumer's, `waiting` the number of records that wait in an outage, `look` looks at the database.
    """

    def __init__(
        self,
        settings: HttpSettings,
        *,
        state: Callable[[], ConsumeState],
        waiting: Callable[[], int],
        look: Callable[[], Awaitable[Seen]],
        retries: Mapping[str, int],
        version: str,
        telemetry: Telemetry,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._state = state
        self._waiting = waiting
        self._look_at_tables = look
        self._retries = retries
        self._version = version
        self._telemetry = telemetry
        self._monotonic = monotonic
        self._sleep = sleep
        self._last: Look | None = None
        self.port: int | None = None
        """Where it is served now."""
        telemetry.scraped.add(self._read)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serves as long as the context, where that is configured.

        Raises:
            FatalError: the address cannot be had.
        """
        if not self._settings.enabled:
            yield
            return
        answering = Answering(alive=self.alive, ready=self.ready, registry=self._telemetry.registry)
        async with serve_http(self._settings, answering) as self.port:
            yield

    async def look_regularly(self) -> None:
        """Until cancelled, where anything is served."""
        while self._settings.enabled:
            await self.look()
            await self._sleep(self._settings.look_interval_s)

    async def look(self) -> None:
        """Once, now."""
        seen, problem = None, None
        try:
            async with asyncio.timeout(self._settings.look_timeout_s):
                seen = await self._look_at_tables()
        except WorkerError as error:
            problem = str(error)
        except TimeoutError:
            problem = f"no answer within {self._settings.look_timeout_s:g} s"
        if problem is not None and (self._last is None or self._last.problem is None):
            log.warning("database.unreachable", problem=problem)
        self._last = Look(self._monotonic(), seen, problem)

    def alive(self) -> list[Check]:
        """Whether a restart would help: what waits for something that is down is alive."""
        state, settings = self._state(), self._settings
        return [
            Check(
                "poll_loop",
                state.ending or state.loop_age_s <= settings.silent_s_max,
                f"turned {state.loop_age_s:.1f} s ago",
            ),
            Check(
                "reading",
                state.ending or state.starved_s <= settings.starved_s_max,
                f"nothing read for {state.starved_s:.0f} s with records to read" if state.starved_s else "in order",
            ),
        ]

    def ready(self) -> list[Check]:
        """Whether it does its work. A spare worker, for which the group has no partition, is ready too."""
        state, last = self._state(), self._last
        seen = None if last is None else last.seen
        return [
            Check(
                "group",
                bool(state.rebalances),
                f"{len(state.partitions)} partitions" if state.rebalances else "not joined",
            ),
            Check("intake", not state.ending, "ending" if state.ending else "open"),
            self._database_check(last),
            Check(
                "dead_letter_limits",
                seen is None or seen.stopped_by is None,
                (seen and seen.stopped_by) or "not reached",
            ),
        ]

    def _database_check(self, last: Look | None) -> Check:
        if last is None:
            return Check("database", holds=False, told="not looked at yet")
        age_s = self._monotonic() - last.at_s
        fresh = age_s <= LOOKS_MISSED_MAX * (self._settings.look_interval_s + self._settings.look_timeout_s)
        return Check("database", last.problem is None and fresh, last.problem or f"reached {age_s:.0f} s ago")

    def _read(self) -> Iterator[Reading]:
        state, waiting, last = self._state(), self._waiting(), self._last
        yield Reading(Metric.BUILD, 1, (self._version,))
        yield from one_hot(Metric.WORKER_STATE, worker_state(state, outage_waiting=waiting).value)
        yield Reading(Metric.OUTAGE_WAITING, waiting)
        yield from read_consume(state)
        yield from read_retries(self._retries)
        if last is not None:
            yield Reading(Metric.DATABASE_REACHABLE, float(self._database_check(last).holds))
            if last.seen is not None:
                yield from read_tables(last.seen)
