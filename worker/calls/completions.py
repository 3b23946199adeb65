"""Completions from the journal where it has them, bought where it has not."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never
from uuid import UUID

from worker.calls.asking import Asking
from worker.calls.failing import Failures
from worker.calls.purchasing import Bought, Failed, Held, Purchasing
from worker.calls.sizing import call_key_of
from worker.core.asking import fingerprint
from worker.core.calls import CallProblem
from worker.core.llm import Completion, CompletionRequest
from worker.limiter import Limiter
from worker.llm_ports import Budgets, CallJournal, Prices, Provider
from worker.settings import LlmSettings
from worker.telemetry import Telemetry

TWIN_POLL_S = 1.0
"""How often to look whether another worker's live call of the same request has its response."""

TWIN_POLL_S_MIN = 0.01


@dataclass(frozen=True, slots=True)
class Completed:
    """A completion, the call on record that it is from, and whether that was bought now."""

    completion: Completion
    call_id: UUID
    bought: bool


class Calls:
    """Completions of one provider and model.

    The provider's troubles are waited for and cost a record nothing; what it says of one request alone (refused,
    rejected, failing again and again while others are answered) is that record's own fault.
    """

    def __init__(
        self,
        *,
        provider: Provider,
        limiter: Limiter,
        journal: CallJournal,
        budgets: Budgets,
        prices: Prices,
        settings: LlmSettings,
        count_tokens: Callable[[str], int],
        telemetry: Telemetry,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._provider = provider
        self._journal = journal
        self._transient_failures_max = settings.transient_failures_max
        self._sleep = sleep
        self._monotonic = monotonic
        self._jitter = jitter
        self._answered = 0
        self._purchasing = Purchasing(
            provider=provider,
            limiter=limiter,
            journal=journal,
            budgets=budgets,
            prices=prices,
            settings=settings,
            count_tokens=count_tokens,
            telemetry=telemetry,
            sleep=sleep,
            monotonic=monotonic,
            now=now,
        )

    async def completion(
        self,
        request: CompletionRequest,
        asking: Asking,
        *,
        tried: Collection[UUID] = frozenset(),
        request_fingerprint: str | None = None,
    ) -> Completed:
        """The oldest response on record to this request that is not among those `tried`; else one bought now.

        `request_fingerprint` spares taking it again: of a request with all its sources that is the dearest step here.

        Raises:
            UnavailableError: the provider (ProviderDownError), the total budget or the database must be waited for.
            RetryableError: this request fails again and again, while others are answered.
            PermanentError: it will never be served, or its tenant's budget is spent.
            NotWantedError: its answer was lost while it stood in line.
            FatalError: the provider does not know us.
        """
        call_key = call_key_of(self._provider, request_fingerprint or fingerprint(request))
        failures = Failures(self._transient_failures_max)
        while True:
            responses = await self._journal.responses(call_key)
            for response in responses:
                if response.call_id not in tried:
                    return Completed(self._provider.read(response.raw, request), response.call_id, bought=False)
            ended = await self._purchasing.buy(request, call_key, asking, responses_known=len(responses))
            match ended:
                case Bought():
                    self._answered += 1
                    return Completed(ended.completion, ended.call_id, bought=True)
                case Failed():
                    await self._sleep(self._pause_s(ended.problem, failures))
                case Held():
                    await self._sleep(min(max(ended.wait_s, TWIN_POLL_S_MIN), TWIN_POLL_S))
                case _:
                    assert_never(ended)

    def _pause_s(self, problem: CallProblem, failures: Failures) -> float:
        told = f"{self._provider.name} {self._provider.model}: {problem.detail}"
        return failures.pause_s(problem, told, answered=self._answered, now_s=self._monotonic(), jitter=self._jitter())
