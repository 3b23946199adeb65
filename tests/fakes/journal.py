"""The call journal in memory, with rows and a clock that tests may read and change."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from worker.core.cost import stored_usd
from worker.core.model import AnswerKey, Usage
from worker.errors import FatalError, UnavailableError
from worker.llm_ports import CallIntent, CallOutcome, CallResult, JournaledCall


@dataclass(slots=True)
class FakeRow:
    """A call on record."""

    intent: CallIntent
    expires_at_s: float
    outcome: CallOutcome = CallOutcome.INTENT
    result: CallResult | None = None

    @property
    def cost_usd(self) -> Decimal | None:
        if self.result is not None and self.result.cost_usd is not None:
            return stored_usd(self.result.cost_usd)
        return Decimal(0) if self.outcome is CallOutcome.FAILED else None


class FakeCallJournal:
    """See `CallJournal`. `down` makes every call raise UnavailableError; time is `now_s`, and only tests move it."""

    def __init__(self) -> None:
        self.down = False
        self.now_s = 0.0
        self.rows: dict[UUID, FakeRow] = {}
        self.claims: dict[bytes, UUID] = {}
        self.looks = 0

    async def responses(self, call_key: bytes) -> Sequence[JournaledCall]:
        self._reach()
        self.looks += 1
        return self._responses(call_key)

    def _responses(self, call_key: bytes) -> Sequence[JournaledCall]:
        return [
            JournaledCall(call_id, row.result.raw, row.result.usage, row.cost_usd)
            for call_id, row in self.rows.items()
            if row.intent.call_key == call_key and row.result is not None and row.result.raw is not None
            if row.outcome is CallOutcome.COMPLETE
        ]

    async def open(self, intent: CallIntent) -> float | None:
        self._reach()
        holder = self.claims.get(intent.call_key)
        if holder == intent.call_id:
            return None
        if holder is not None:
            left_s = self.rows[holder].expires_at_s - self.now_s
            if left_s > 0:
                return left_s
            self.rows[holder].outcome = CallOutcome.UNKNOWN
            del self.claims[intent.call_key]
        known = intent.responses_known
        if known is not None and len(self._responses(intent.call_key)) > known:
            return 0.0
        self.claims[intent.call_key] = intent.call_id
        self.rows[intent.call_id] = FakeRow(intent, self.now_s + intent.lives_s)
        return None

    async def close(self, call_id: UUID, result: CallResult) -> None:
        self._reach()
        row = self.rows.get(call_id)
        if row is None:
            raise FatalError(f"the LLM call {call_id} ended, and no intent of it is on record")
        if self.claims.get(row.intent.call_key) == call_id:
            del self.claims[row.intent.call_key]
        late = row.outcome is CallOutcome.UNKNOWN and result.outcome is not CallOutcome.UNKNOWN
        if row.outcome is CallOutcome.INTENT or late:
            row.outcome, row.result = result.outcome, result

    async def usage_of(self, key: AnswerKey) -> Usage:
        self._reach()
        rows = [row for row in self.rows.values() if row.intent.answer_key == key]
        used = [row.result.usage for row in rows if row.result is not None and row.result.usage is not None]
        costs = [row.cost_usd for row in rows]
        return Usage(
            calls=sum(row.outcome is not CallOutcome.FAILED or bool(row.cost_usd) for row in rows),
            input_tokens=sum(usage.input_tokens for usage in used),
            cache_read_tokens=sum(usage.cache_read_tokens for usage in used),
            cache_write_tokens=sum(usage.cache_write_tokens for usage in used),
            output_tokens=sum(usage.output_tokens for usage in used),
            reasoning_tokens=sum(usage.reasoning_tokens for usage in used),
            cost_usd=None if None in costs else sum((cost for cost in costs if cost is not None), Decimal(0)),
        )

    async def sweep(self) -> int:
        """What dead workers left behind becomes `unknown`."""
        self._reach()
        expired = [key for key, call_id in self.claims.items() if self.rows[call_id].expires_at_s <= self.now_s]
        for key in expired:
            self.rows[self.claims.pop(key)].outcome = CallOutcome.UNKNOWN
        return len(expired)

    def _reach(self) -> None:
        if self.down:
            raise UnavailableError("the database is down")
