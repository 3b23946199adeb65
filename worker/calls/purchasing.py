"""One call bought: limiter → budget → intent → provider → record, each given back or settled whatever happens."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

from worker.calls.asking import Asking, NotWantedError
from worker.calls.identity import new_call_id
from worker.calls.paying import MoneyInUseError, Purse
from worker.calls.recording import Recorder
from worker.calls.sizing import Sizing
from worker.core.calls import CallFailure, CallProblem
from worker.core.cost import cost_usd
from worker.core.llm import Completion, CompletionRequest
from worker.limiter import Limiter, Slot
from worker.llm_ports import (
    Budgets,
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

GRACE_S = 5.0
"""A provider's adapter ends a call at its deadline; one that does not is ended a little later."""

MONEY_POLL_S = 1.0
"""How often to look whether a call in flight has cost less than was set aside for it."""

HTTP_OK = 200
TOO_MANY_REQUESTS = 429
OVERLOADED = 529


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


@dataclass(frozen=True, slots=True)
class Held:
    """Not bought yet; look again after `wait_s` at most.

    Another worker makes the same call, or just ended it, or the budget's money is set aside for calls in flight.
    """

    wait_s: float


@dataclass(frozen=True, slots=True)
class Sending:
    """A call that is about to leave, and what it holds."""

    request: CompletionRequest
    intent: CallIntent
    slot: Slot
    reservation: Reservation
    timeout_s: float


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
        self._recorder = Recorder(
            journal, telemetry, opening_s_max=settings.recording_s, sleep=sleep, monotonic=monotonic
        )
        self._purse = Purse(provider=provider, budgets=budgets, prices=prices, now=now)
        self._call_timeout_s = settings.call_timeout_s
        self._recording_s = settings.recording_s
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
        most_usd = self._purse.most_usd(estimate)
        intent = self._intent(request, call_key, asking, most_usd, responses_known)
        async with self._limiter.slot(admission=asking.admission, estimate=estimate) as slot:
            self._telemetry.limiter_waited(self._provider.name, self._provider.model, slot.waited_s)
            if asking.is_lost:
                raise NotWantedError("the answer was lost by another of its calls")
            try:
                async with self._purse.set_aside(asking.answer_key.tenant, most_usd) as reservation:
                    ended = await self._open_and_make(request, intent, slot, reservation)
            except MoneyInUseError:
                return Held(MONEY_POLL_S)
        if not isinstance(ended, Held):
            await self._recorder.close(intent.call_id, ended.result)
        return ended

    async def _open_and_make(
        self, request: CompletionRequest, intent: CallIntent, slot: Slot, reservation: Reservation
    ) -> Bought | Failed | Held:
        began_s = self._monotonic()
        held_s = await self._recorder.open(intent)
        if held_s is not None:
            return Held(held_s)
        # The intent's life began when it was first tried to be recorded, and the call must end within it.
        late_s = max(0.0, self._monotonic() - began_s - self._recording_s)
        with self._telemetry.tracing.chat(self._provider.name, self._provider.model, request):
            timeout_s = max(1.0, self._call_timeout_s - late_s)
            return await self._make(Sending(request, intent, slot, reservation, timeout_s))

    async def _make(self, sending: Sending) -> Bought | Failed:
        started_s = self._monotonic()
        sending.slot.sent()
        try:
            reply = await self._exchange(sending)
        except CallFailedError as error:
            _tell_slot(sending.slot, error)
            if error.problem.response_lost:
                sending.reservation.settle(None)
            self._telemetry.call_failed(self._provider.name, self._provider.model, error.problem)
            return Failed(self._failed(error.problem, started_s), error.problem)
        except (Exception, asyncio.CancelledError):
            # It may be served and billed all the same; its response cannot arrive any more.
            sending.reservation.settle(None)
            lost = CallProblem(CallFailure.TRANSIENT, "cancelled in flight", response_lost=True)
            await self._recorder.give_up(sending.intent.call_id, self._failed(lost, started_s))
            raise
        return self._bought(sending, reply, started_s)

    async def _exchange(self, sending: Sending) -> Reply:
        try:
            async with asyncio.timeout(sending.timeout_s + GRACE_S):
                return await self._provider.complete(
                    sending.request,
                    client_request_id=sending.intent.client_request_id,
                    timeout_s=sending.timeout_s,
                )
        except TimeoutError:
            detail = f"no response within {sending.timeout_s:g} s"
            raise CallFailedError(CallProblem(CallFailure.TRANSIENT, detail, response_lost=True)) from None

    def _bought(self, sending: Sending, reply: Reply, started_s: float) -> Bought:
        """Usage and cost belong into the row; what the message is worth is looked at when it is on record."""
        sending.slot.answered(HTTP_OK, reply.headers)
        completion = self._provider.read(reply.raw, sending.request)
        sending.slot.settle(completion.usage)
        prices = self._purse.prices_of(completion.usage)
        cost = None if prices is None else cost_usd(completion.usage, prices)
        sending.reservation.settle(cost)
        result = CallResult(
            outcome=CallOutcome.COMPLETE,
            latency_ms=self._elapsed_ms(started_s),
            raw=reply.raw,
            usage=completion.usage,
            prices=prices,
            cost_usd=cost,
            provider_request_id=completion.provider_request_id,
            http_status=HTTP_OK,
        )
        name, model = self._provider.name, self._provider.model
        self._telemetry.call_answered(name, model, self._monotonic() - started_s)
        self._telemetry.call_made(name, model, sending.request.stage, completion, cost)
        return Bought(sending.intent.call_id, result, completion)

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
        call_id = new_call_id(self._now())
        return CallIntent(
            call_id=call_id,
            call_key=call_key,
            answer_key=asking.answer_key,
            stage=request.stage,
            provider=self._provider.name,
            model=self._provider.model,
            client_request_id=str(call_id),
            lives_s=self._recording_s + self._call_timeout_s + GRACE_S + self._recording_s,
            reserved_usd=reserved_usd,
            responses_known=responses_known,
        )

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
