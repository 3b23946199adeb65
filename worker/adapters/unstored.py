"""What an LLM judge needs around it where there is no database: a journal in memory, and no budget."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from worker.core.cost import stored_usd
from worker.core.model import AnswerKey, Judgement, TenantId, Usage
from worker.errors import FatalError
from worker.llm_ports import CallIntent, CallOutcome, CallResult, JournaledCall, Reservation

ANSWERS_MAX = 1_000
"""Answers whose calls are remembered: many more than are judged at once."""


@dataclass(slots=True)
class Call:
    """A call made by this process."""

    intent: CallIntent
    expires_at_s: float
    outcome: CallOutcome = CallOutcome.INTENT
    result: CallResult | None = None


class UnstoredJournal:
    """Implements `CallJournal` for this process alone, and for its latest answers: nothing survives it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._calls: dict[UUID, Call] = {}
        self._by_key: dict[bytes, list[Call]] = {}
        self._by_answer: OrderedDict[AnswerKey, list[Call]] = OrderedDict()

    async def responses(self, call_key: bytes) -> Sequence[JournaledCall]:
        return [
            JournaledCall(call.intent.call_id, call.result.raw, call.result.usage, call.result.cost_usd)
            for call in self._by_key.get(call_key, ())
            if call.outcome is CallOutcome.COMPLETE and call.result is not None and call.result.raw is not None
        ]

    async def open(self, intent: CallIntent) -> float | None:
        now_s = self._monotonic()
        for call in self._by_key.get(intent.call_key, ()):
            if call.outcome is CallOutcome.INTENT and call.intent.call_id != intent.call_id:
                if call.expires_at_s > now_s:
                    return call.expires_at_s - now_s
                call.outcome = CallOutcome.UNKNOWN
        known = intent.responses_known
        if known is not None and len(await self.responses(intent.call_key)) > known:
            return 0.0
        if intent.call_id not in self._calls:
            self._add(Call(intent, now_s + intent.lives_s))
        return None

    async def close(self, call_id: UUID, result: CallResult) -> None:
        call = self._calls.get(call_id)
        if call is None:
            raise FatalError(f"the LLM call {call_id} ended, and no intent of it is on record")
        late = call.outcome is CallOutcome.UNKNOWN and result.outcome is not CallOutcome.UNKNOWN
        if call.outcome is CallOutcome.INTENT or late:
            call.outcome, call.result = result.outcome, result

    async def usage_of(self, key: AnswerKey) -> Usage:
        calls = self._by_answer.get(key, ())
        costs = [_cost_usd(call) for call in calls]
        usages = [call.result.usage for call in calls if call.result is not None and call.result.usage is not None]
        return Usage(
            calls=sum(call.outcome is not CallOutcome.FAILED or bool(_cost_usd(call)) for call in calls),
            input_tokens=sum(usage.input_tokens for usage in usages),
            cache_read_tokens=sum(usage.cache_read_tokens for usage in usages),
            cache_write_tokens=sum(usage.cache_write_tokens for usage in usages),
            output_tokens=sum(usage.output_tokens for usage in usages),
            reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
            cost_usd=_total(costs),
        )

    def outcomes(self) -> Mapping[UUID, CallOutcome]:
        """Where each call stands."""
        return {call_id: call.outcome for call_id, call in self._calls.items()}

    def _add(self, call: Call) -> None:
        intent = call.intent
        self._calls[intent.call_id] = call
        self._by_key.setdefault(intent.call_key, []).append(call)
        self._by_answer.setdefault(intent.answer_key, []).append(call)
        self._by_answer.move_to_end(intent.answer_key)
        if len(self._by_answer) > ANSWERS_MAX:
            _, forgotten = self._by_answer.popitem(last=False)
            for old in forgotten:
                del self._calls[old.intent.call_id]
                self._by_key.pop(old.intent.call_key, None)


def _cost_usd(call: Call) -> Decimal | None:
    if call.result is not None and call.result.cost_usd is not None:
        return stored_usd(call.result.cost_usd)
    return Decimal(0) if call.outcome is CallOutcome.FAILED else None


def _total(costs: Iterable[Decimal | None]) -> Decimal | None:
    total = Decimal(0)
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return total


class UnstoredJudgements:
    """Implements `JudgementCache` with nothing in it: only what this process judged lately can be copied."""

    async def find_judgement(self, tenant: TenantId, reuse_hash: bytes) -> Judgement | None:  # noqa: ARG002  # the port's
        return None


class UnboundedBudgets:
    """Implements `Budgets` without any budget."""

    async def reserve(self, tenant: TenantId, amount_usd: Decimal | None) -> Reservation:  # noqa: ARG002  # the port's
        return NothingReserved()


class NothingReserved:
    """Implements `Reservation`."""

    def settle(self, cost_usd: Decimal | None) -> None:
        """Nothing was set aside."""

    def release(self) -> None:
        """Nothing was set aside."""
