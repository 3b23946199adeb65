"""One LLM call: journal → budget → limiter → provider. A response that was paid for is used, never bought again."""

import asyncio
import hashlib
import json
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import assert_never
from uuid import UUID, uuid4

from schemas.dead_letter import DeadLetterReason
from worker.core.asking import fingerprint
from worker.core.budget import BudgetScope
from worker.core.calls import CallFailure, CallProblem
from worker.core.charging import Estimate
from worker.core.cost import UnitPrices, cost_usd, cost_usd_max
from worker.core.llm import Completion, CompletionRequest
from worker.core.model import AnswerKey
from worker.errors import FatalError, PermanentError, RetryableError, UnavailableError
from worker.limiter import Limiter, Slot
from worker.llm_ports import (
    Budgets,
    BudgetSpentError,
    CallFailedError,
    CallIntent,
    CallJournal,
    CallOutcome,
    CallResult,
    Prices,
    Provider,
    Reply,
    Reservation,
)
from worker.settings import LlmSettings
from worker.telemetry import Telemetry

TWIN_POLL_S = 1.0
"""How often to look whether another worker's live call of the same request has its response."""

INTENT_MARGIN_S = 30.0
"""Beyond the call's own deadline: recording its end takes a moment."""

TRANSIENT_PAUSE_S = 0.5
"""After a first failure of the provider's; doubles, with jitter."""

QUOTA_PAUSE_S = 60.0
"""How often to look whether an operator has filled the account."""

FRAMING_TOKENS = 64
"""What a provider adds to a request's texts."""

HTTP_OK = 200


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks: the answer, and its place in the order of admission."""

    answer_key: AnswerKey
    admission: int


class Calls:
    """Completions of one provider and model, from the journal where it has them, bought where it has not.

    The provider's troubles are waited for and cost a record nothing; what it says of one request alone (refused,
    rejected, failing again and again while others succeed) is that record's own fault.
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
        self._limiter = limiter
        self._journal = journal
        self._budgets = budgets
        self._prices = prices
        self._settings = settings
        self._count_tokens = count_tokens
        self._telemetry = telemetry
        self._sleep = sleep
        self._monotonic = monotonic
        self._now = now
        self._jitter = jitter

    async def completion(self, request: CompletionRequest, asking: Asking, *, skip: int) -> tuple[Completion, bool]:
        """The response number `skip` (from 0) to this request, and whether it had to be bought.

        `skip` counts the responses on record that were tried and led nowhere.

        Raises:
            UnavailableError: the provider, the budget or the database must be waited for.
            RetryableError, PermanentError: this request fails, the provider being well.
            FatalError: the provider does not know us.
        """
        call_key = call_key_of(self._provider, request)
        failures = 0
        while True:
            responses = await self._journal.responses(call_key)
            if len(responses) > skip:
                return self._provider.read(responses[skip].raw, request), False
            try:
                bought = await self._buy(request, call_key, asking)
            except CallFailedError as error:
                failures += error.problem.failure is CallFailure.TRANSIENT
                await self._pause_after(error.problem, failures)
                continue
            if bought is not None:
                return bought, True

    async def _buy(self, request: CompletionRequest, call_key: bytes, asking: Asking) -> Completion | None:
        """One call; None when another worker is making it, and it was waited for."""
        estimate = self._estimate(request)
        prices = self._prices_of(estimate)
        reserved_usd = None if prices is None else _most(estimate, prices)
        reservation = await self._reserve(asking.answer_key, reserved_usd)
        # Released unless the call settles it first: a reservation ends once.
        try:
            async with self._limiter.slot(admission=asking.admission, estimate=estimate) as slot:
                intent = self._intent(request, call_key, asking, reserved_usd)
                held_s = await self._journal.open(intent)
                if held_s is None:
                    return await self._call(request, intent.call_id, slot, reservation)
        finally:
            reservation.release()
        await self._sleep(min(held_s, TWIN_POLL_S))
        return None

    async def _call(
        self, request: CompletionRequest, call_id: UUID, slot: Slot, reservation: Reservation
    ) -> Completion:
        started_s = self._monotonic()
        slot.sent()
        try:
            reply = await self._exchange(request, call_id)
        except CallFailedError as error:
            _tell_slot(slot, error)
            if error.problem.response_lost:
                reservation.settle(None)
            await self._journal.close(call_id, self._failed(error.problem, started_s))
            self._telemetry.call_failed(self._provider.name, self._provider.model, error.problem)
            raise
        except BaseException:
            # Cancelled in flight: it may be served and billed; the intent stays, and becomes unknown.
            reservation.settle(None)
            raise
        slot.answered(HTTP_OK, reply.headers)
        # Journaled before anybody looks at what the model said; reading usage and cost cannot fail.
        completion = self._provider.read(reply.raw, request)
        result = self._completed(reply, completion, started_s)
        reservation.settle(result.cost_usd)
        slot.settle(completion.usage)
        await self._journal.close(call_id, result)
        self._telemetry.call_made(self._provider.name, self._provider.model, request.stage, completion, result.cost_usd)
        return completion

    async def _exchange(self, request: CompletionRequest, call_id: UUID) -> Reply:
        """The call under its total deadline; past it the response is lost, and may be billed all the same."""
        deadline_s = self._settings.call_timeout_s
        try:
            async with asyncio.timeout(deadline_s):
                return await self._provider.complete(request, client_request_id=str(call_id), timeout_s=deadline_s)
        except TimeoutError:
            detail = f"no response within {deadline_s:g} s"
            raise CallFailedError(CallProblem(CallFailure.TRANSIENT, detail, response_lost=True)) from None

    def _completed(self, reply: Reply, completion: Completion, started_s: float) -> CallResult:
        usage = completion.usage
        whole_input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        prices = self._prices.of(self._provider.name, self._provider.model, self._now(), input_tokens=whole_input)
        return CallResult(
            outcome=CallOutcome.COMPLETE,
            latency_ms=self._elapsed_ms(started_s),
            raw=reply.raw,
            usage=usage,
            prices=prices,
            cost_usd=None if prices is None else cost_usd(usage, prices),
            provider_request_id=completion.provider_request_id,
            http_status=HTTP_OK,
        )

    def _failed(self, problem: CallProblem, started_s: float) -> CallResult:
        return CallResult(
            outcome=CallOutcome.UNKNOWN if problem.response_lost else CallOutcome.FAILED,
            latency_ms=self._elapsed_ms(started_s),
            http_status=problem.status,
            detail=problem.detail,
        )

    def _intent(
        self, request: CompletionRequest, call_key: bytes, asking: Asking, reserved_usd: Decimal | None
    ) -> CallIntent:
        call_id = uuid4()
        return CallIntent(
            call_id=call_id,
            call_key=call_key,
            answer_key=asking.answer_key,
            stage=request.stage,
            provider=self._provider.name,
            model=self._provider.model,
            client_request_id=str(call_id),
            lives_s=self._settings.call_timeout_s + INTENT_MARGIN_S,
            reserved_usd=reserved_usd,
        )

    def _estimate(self, request: CompletionRequest) -> Estimate:
        texts = (request.instructions, request.context, request.question, json.dumps(request.schema))
        counted = sum(self._count_tokens(text) for text in texts) + FRAMING_TOKENS
        return Estimate(math.ceil(counted * self._settings.token_margin), request.output_tokens_max)

    def _prices_of(self, estimate: Estimate) -> UnitPrices | None:
        return self._prices.of(
            self._provider.name, self._provider.model, self._now(), input_tokens=estimate.input_tokens
        )

    async def _reserve(self, answer_key: AnswerKey, amount_usd: Decimal | None) -> Reservation:
        """Set money aside.

        Raises:
            UnavailableError: the total budget is spent: intake waits until its window ends.
            PermanentError: the tenant's own is: its records are set aside, and hold up nobody else.
        """
        try:
            return await self._budgets.reserve(answer_key.tenant, amount_usd)
        except BudgetSpentError as error:
            match error.scope:
                case BudgetScope.TOTAL:
                    raise UnavailableError(str(error), retry_after_s=error.resets_in_s) from error
                case BudgetScope.TENANT:
                    raise PermanentError(DeadLetterReason.BUDGET_EXHAUSTED, str(error)) from error
                case _:
                    assert_never(error.scope)

    async def _pause_after(self, problem: CallProblem, failures: int) -> None:
        """What a failed call means; returns when the call may be tried again.

        Raises:
            UnavailableError, RetryableError, PermanentError, FatalError: it may not, or not now.
        """
        told = f"{self._provider.name} {self._provider.model}: {problem.detail}"
        match problem.failure:
            case CallFailure.THROTTLED | CallFailure.OVERLOADED:
                return  # the limiter was told, and lets nobody through too early
            case CallFailure.TRANSIENT:
                if failures >= self._settings.transient_failures_max:
                    raise RetryableError(f"{told}, {failures} times while others succeed")
                await self._sleep(TRANSIENT_PAUSE_S * 2 ** (failures - 1) * (0.5 + self._jitter()))
            case CallFailure.QUOTA:
                raise UnavailableError(f"{told}: the account is out of quota", retry_after_s=QUOTA_PAUSE_S)
            case CallFailure.DENIED:
                raise FatalError(f"{told}: check the API key, the account's rights and judge.model")
            case CallFailure.REFUSED | CallFailure.REJECTED:
                raise PermanentError(DeadLetterReason.JUDGE_REFUSED, told)
            case _:
                assert_never(problem.failure)

    def _elapsed_ms(self, started_s: float) -> int:
        return round((self._monotonic() - started_s) * 1000)


def call_key_of(provider: Provider, request: CompletionRequest) -> bytes:
    """SHA-256 over provider, model and the whole neutral request.

    The same at every redelivery, also after a parameter downgrade or an SDK's upgrade changed the body on the wire.
    """
    asked = "\n".join((provider.name, provider.model, fingerprint(request)))
    return hashlib.sha256(asked.encode()).digest()


def _most(estimate: Estimate, prices: UnitPrices) -> Decimal:
    return cost_usd_max(prices, input_tokens_max=estimate.input_tokens, output_tokens_max=estimate.output_tokens_max)


def _tell_slot(slot: Slot, error: CallFailedError) -> None:
    """What the limiter and its circuit breaker learn from a failed call."""
    if error.problem.status is None:
        slot.unanswered()
    else:
        slot.answered(error.problem.status, error.headers)
