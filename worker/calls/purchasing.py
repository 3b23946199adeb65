"""One call bought: limiter → budget → intent → provider → record, each given back or settled whatever happens."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import assert_never
from uuid import UUID, uuid4

from schemas.dead_letter import DeadLetterReason
from worker.calls.asking import Asking, NotWantedError
from worker.calls.recording import OPENING_S_MAX, Recorder
from worker.calls.sizing import Sizing, most_usd
from worker.core.budget import BudgetScope
from worker.core.calls import CallFailure, CallProblem
from worker.core.charging import Estimate
from worker.core.cost import UnitPrices, cost_usd
from worker.core.llm import Completion, CompletionRequest
from worker.core.model import AnswerKey
from worker.errors import PermanentError, UnavailableError
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

CLOSING_S = 30.0
"""Beyond the call's own deadline: recording its end takes a moment."""

GRACE_S = 5.0
"""A provider's adapter ends a call at its deadline; one that does not is ended a little later."""

HTTP_OK = 200
TOO_MANY_REQUESTS = 429
OVERLOADED = 529


@dataclass(frozen=True, slots=True)
class Held:
    """Not bought: another worker makes the same call, for `wait_s` more at most, or just ended it."""

    wait_s: float


@dataclass(frozen=True, slots=True)
class Bought:
    """A response came; `result` is how the call stands on record."""

    call_id: UUID
    result: CallResult
    completion: Completion


@dataclass(frozen=True, slots=True)
class Failed:
    """None came that can be used."""

    result: CallResult
    problem: CallProblem


class Purchasing:
    """Buys single calls of one provider and model."""

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
    ) -> None:
        self._provider = provider
        self._limiter = limiter
        self._recorder = Recorder(journal, telemetry, sleep=sleep, monotonic=monotonic)
        self._budgets = budgets
        self._prices = prices
        self._settings = settings
        self._sizing = Sizing(count_tokens, settings.token_margin)
        self._telemetry = telemetry
        self._monotonic = monotonic
        self._now = now

    async def buy(
        self, request: CompletionRequest, call_key: bytes, asking: Asking, *, responses_known: int
    ) -> Bought | Failed | Held:
        """One call, and its end on record, however it ended.

        Raises:
            NotWantedError: its answer was lost while it stood in line.
            UnavailableError: the provider, the total budget or the database must be waited for; nothing was sent.
            PermanentError: the tenant's budget is spent, or no limit will ever let the call through.
        """
        estimate = self._sizing.estimate(request)
        async with self._limiter.slot(admission=asking.admission, estimate=estimate) as slot:
            if asking.is_lost:
                raise NotWantedError("the answer was lost by another of its calls")
            reserved_usd = self._most_usd(estimate)
            reservation = await self._reserve(asking.answer_key, reserved_usd)
            try:
                intent = self._intent(request, call_key, asking, reserved_usd, responses_known)
                began_s = self._monotonic()
                held_s = await self._recorder.open(intent)
                if held_s is not None:
                    return Held(held_s)
                ended = await self._make(request, intent, slot, reservation, opened_in_s=self._monotonic() - began_s)
            finally:
                # Unless the call settled it: a reservation ends once.
                reservation.release()
        await self._recorder.close(intent.call_id, ended.result)
        self._tell(request, ended)
        return ended

    async def _make(
        self,
        request: CompletionRequest,
        intent: CallIntent,
        slot: Slot,
        reservation: Reservation,
        *,
        opened_in_s: float,
    ) -> Bought | Failed:
        # The intent's life began when it was first tried to be recorded: the call must end within it.
        timeout_s = self._settings.call_timeout_s - max(0.0, opened_in_s - OPENING_S_MAX)
        started_s = self._monotonic()
        slot.sent()
        try:
            reply = await self._exchange(request, intent, timeout_s)
        except CallFailedError as error:
            _tell_slot(slot, error)
            if error.problem.response_lost:
                reservation.settle(None)
            return Failed(self._failed(error.problem, started_s), error.problem)
        except BaseException:
            # It may be served and billed all the same; its response cannot arrive any more.
            reservation.settle(None)
            lost = CallProblem(CallFailure.TRANSIENT, "cancelled in flight", response_lost=True)
            await self._recorder.give_up(intent.call_id, self._failed(lost, started_s))
            raise
        slot.answered(HTTP_OK, reply.headers)
        # Usage and cost belong into the row; whether the message is of any use is looked at when it is on record.
        completion = self._provider.read(reply.raw, request)
        slot.settle(completion.usage)
        result = self._completed(reply, completion, started_s)
        reservation.settle(result.cost_usd)
        return Bought(intent.call_id, result, completion)

    async def _exchange(self, request: CompletionRequest, intent: CallIntent, timeout_s: float) -> Reply:
        try:
            async with asyncio.timeout(timeout_s + GRACE_S):
                return await self._provider.complete(
                    request, client_request_id=intent.client_request_id, timeout_s=timeout_s
                )
        except TimeoutError:
            detail = f"no response within {timeout_s:g} s"
            raise CallFailedError(CallProblem(CallFailure.TRANSIENT, detail, response_lost=True)) from None

    def _completed(self, reply: Reply, completion: Completion, started_s: float) -> CallResult:
        usage = completion.usage
        whole_input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        prices = self._unit_prices(whole_input)
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
        self,
        request: CompletionRequest,
        call_key: bytes,
        asking: Asking,
        reserved_usd: Decimal | None,
        responses_known: int,
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
            lives_s=OPENING_S_MAX + self._settings.call_timeout_s + GRACE_S + CLOSING_S,
            reserved_usd=reserved_usd,
            responses_known=responses_known,
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

    def _most_usd(self, estimate: Estimate) -> Decimal | None:
        prices = self._unit_prices(estimate.input_tokens)
        return None if prices is None else most_usd(estimate, prices)

    def _unit_prices(self, input_tokens: int) -> UnitPrices | None:
        return self._prices.of(self._provider.name, self._provider.model, self._now(), input_tokens=input_tokens)

    def _tell(self, request: CompletionRequest, ended: Bought | Failed) -> None:
        name, model = self._provider.name, self._provider.model
        match ended:
            case Bought():
                self._telemetry.call_made(name, model, request.stage, ended.completion, ended.result.cost_usd)
            case Failed():
                self._telemetry.call_failed(name, model, ended.problem)
            case _:
                assert_never(ended)

    def _elapsed_ms(self, started_s: float) -> int:
        return round((self._monotonic() - started_s) * 1000)


def _tell_slot(slot: Slot, error: CallFailedError) -> None:
    """What the limiter and its circuit breaker learn from a failed call, whatever status it came under."""
    problem = error.problem
    if problem.response_lost or problem.status is None:
        # Also a 200 that holds no completion: a gateway that spoils each of them spends money until it is avoided.
        slot.unanswered()
        return
    match problem.failure:
        case CallFailure.THROTTLED:
            slot.answered(TOO_MANY_REQUESTS, error.headers)
        case CallFailure.OVERLOADED:
            slot.answered(OVERLOADED, error.headers)
        case _:
            slot.answered(problem.status, error.headers)
