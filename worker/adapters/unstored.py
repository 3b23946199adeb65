"""What an LLM judge needs around it where there is no database: a journal in memory, and no budget."""

from collections.abc import Sequence
from decimal import Decimal
from uuid import UUID

from worker.core.model import AnswerKey, TenantId, Usage
from worker.llm_ports import CallIntent, CallOutcome, CallResult, JournaledCall, Reservation


class UnstoredJournal:
    """Implements `CallJournal` for this process alone: nothing survives it."""

    def __init__(self) -> None:
        self._intents: dict[UUID, CallIntent] = {}
        self._results: dict[UUID, CallResult] = {}

    async def responses(self, call_key: bytes) -> Sequence[JournaledCall]:
        return [
            JournaledCall(call_id, result.raw, result.usage, result.cost_usd)
            for call_id, result in self._results.items()
            if self._intents[call_id].call_key == call_key and result.raw is not None
        ]

    async def open(self, intent: CallIntent) -> float | None:
        self._intents[intent.call_id] = intent
        return None

    async def close(self, call_id: UUID, result: CallResult) -> None:
        self._results.setdefault(call_id, result)

    async def usage_of(self, key: AnswerKey) -> Usage:
        results = [self._results.get(call_id) for call_id, intent in self._intents.items() if intent.answer_key == key]
        billed = [result for result in results if result is None or result.outcome is not CallOutcome.FAILED]
        usages = [result.usage for result in billed if result is not None and result.usage is not None]
        costs = [None if result is None else result.cost_usd for result in billed]
        return Usage(
            calls=len(billed),
            input_tokens=sum(usage.input_tokens for usage in usages),
            cache_read_tokens=sum(usage.cache_read_tokens for usage in usages),
            cache_write_tokens=sum(usage.cache_write_tokens for usage in usages),
            output_tokens=sum(usage.output_tokens for usage in usages),
            reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
            cost_usd=_total([cost for cost in costs if cost is not None]) if None not in costs else None,
        )


def _total(costs: Sequence[Decimal]) -> Decimal:
    return sum(costs, Decimal(0))


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
