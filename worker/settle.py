"""One record until it has its outcome; returns only when its offset is safe to commit."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from schemas.dead_letter import DeadLetterReason
from worker.core.model import AnswerIdentity
from worker.core.outcome import Outcome, Processed
from worker.core.records import OutboundMessage, Record
from worker.core.retry import RetryPolicy
from worker.errors import PermanentError, RetryableError, UnavailableError
from worker.ports import DeadLetter, DeadLetterStore
from worker.telemetry import Telemetry

T = TypeVar("T")


class Outages:
    """Knows whether any record is waiting for something that is down; intake is closed while one is."""

    def __init__(self) -> None:
        self._waiting = 0

    @property
    def waiting(self) -> int:
        return self._waiting

    def none_open(self) -> bool:
        return self._waiting == 0

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1


@dataclass(slots=True)
class Tally:
    """What one record has used up so far."""

    attempts: int = 0
    outage_tries: int = 0


class Settle:
    """Retries, outages and dead letters around one processing line.

    Only a record's own faults use up its attempts. While something we depend on is down the record waits, for as long
    as it takes, and intake is closed.
    """

    def __init__(
        self,
        *,
        process: Callable[[Record], Awaitable[Processed]],
        dead_letters: DeadLetterStore,
        encode_dead_letter: Callable[[DeadLetter], OutboundMessage],
        identify: Callable[[Record], AnswerIdentity],
        on_stored: Callable[[], None],
        policy: RetryPolicy,
        outages: Outages,
        telemetry: Telemetry,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._process = process
        self._dead_letters = dead_letters
        self._encode_dead_letter = encode_dead_letter
        self._identify = identify
        self._on_stored = on_stored
        self._policy = policy
        self._outages = outages
        self._telemetry = telemetry
        self._sleep = sleep
        self._monotonic = monotonic
        self._jitter = jitter

    async def __call__(self, record: Record) -> Outcome:
        """Settle one record.

        Raises:
            FatalError: going on would lose data; the offset must stay uncommitted. Any other error is a bug, likewise.
        """
        started_s = self._monotonic()
        tally = Tally()
        with self._telemetry.tracing.process(record):
            processed = await self._to_outcome(record, tally)
            self._telemetry.record_settled(record, processed, tally.attempts, self._monotonic() - started_s)
        return processed.outcome

    async def _to_outcome(self, record: Record, tally: Tally) -> Processed:
        for attempt in count(1):
            tally.attempts = attempt
            try:
                return await self._through_outages(lambda: self._process(record), tally)
            except PermanentError as error:
                return await self._set_aside(record, error.reason, error.detail, tally)
            except RetryableError as error:
                pause_s = self._policy.pause_after_failure_s(attempt, self._jitter(), error.retry_after_s)
                if pause_s is None:
                    return await self._set_aside(record, error.exhausted_reason, str(error), tally)
                self._telemetry.attempt_failed(record, attempt, str(error), pause_s)
            await self._sleep(pause_s)
        raise AssertionError("unreachable: the policy ends the attempts")

    async def _set_aside(self, record: Record, reason: DeadLetterReason, detail: str, tally: Tally) -> Processed:
        dead_letter = DeadLetter(record, reason, detail, tally.attempts, self._identify(record))
        message = self._encode_dead_letter(dead_letter)
        with self._telemetry.tracing.settle():
            outcome = await self._through_outages(
                lambda: self._dead_letters.save_dead_letter(dead_letter, message), tally
            )
        if outcome is Outcome.DEAD_LETTER:
            self._on_stored()
            self._telemetry.dead_letter_stored(record, reason, detail)
        return Processed(outcome, dead_letter.identity.key)

    async def _through_outages(self, step: Callable[[], Awaitable[T]], tally: Tally) -> T:
        try:
            return await step()
        except UnavailableError as error:
            outage = error
        # Intake is closed from the first failure to the success, not only while sleeping: a probe under way is no
        # sign of health.
        with self._outages.waited_for():
            for tries in count(1):
                tally.outage_tries = tries
                self._telemetry.outage_waited(str(outage), tries)
                await self._sleep(self._policy.pause_in_outage_s(tries, self._jitter(), outage.retry_after_s))
                try:
                    return await step()
                except UnavailableError as error:
                    outage = error
        raise AssertionError("unreachable: an outage is waited for without end")
