"""What the judge needs around an LLM call, as protocols owned by it; adapters implement them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from worker.core.budget import BudgetScope
from worker.core.calls import CallProblem
from worker.core.cost import UnitPrices
from worker.core.llm import Completion, CompletionRequest, CompletionUsage, Stage
from worker.core.model import AnswerKey, TenantId, Usage
from worker.errors import UnavailableError, WorkerError


class CallFailedError(WorkerError):
    """A call that gave no completion; `problem` says whose fault it is, `headers` what the provider said of limits."""

    def __init__(self, problem: CallProblem, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{problem.failure.value}: {problem.detail}")
        self.problem = problem
        self.headers = dict(headers or {})


class ProviderDownError(UnavailableError):
    """The provider does not answer, or does not serve this account now: another judge may be asked meanwhile."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response as received: `raw` is its body, journaled before anybody reads it."""

    raw: str
    headers: Mapping[str, str]


class Provider(Protocol):
    """One model of one LLM provider. Needed by `judge`."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    async def complete(self, request: CompletionRequest, *, client_request_id: str, timeout_s: float) -> Reply:
        """One call over HTTP, never retried in here.

        Raises:
            CallFailedError: no completion; its problem says whose fault that is.
        """
        ...

    def read(self, raw: str, request: CompletionRequest) -> Completion:
        """What a body says; the same for a live reply and a journaled one. Never raises.

        A body that is no completion reads as Finish.UNKNOWN with usage estimated from the request.
        """
        ...


class Prices(Protocol):
    """Unit prices by provider and model. Needed by `judge`."""

    def of(self, provider: str, model: str, at: datetime, *, input_tokens: int) -> UnitPrices | None:
        """The prices in force at that time, or None: a model nobody knows is unpriced, never free.

        `input_tokens` is the whole input, cached or not: some models ask more for every token of a large call.
        """
        ...


class CallOutcome(StrEnum):
    """Where a journaled call stands. Every call that a provider may have billed has exactly one row."""

    INTENT = "intent"  # about to be made, or in flight
    COMPLETE = "complete"  # a response arrived; what it says is judged by whoever reads it
    FAILED = "failed"  # the provider answered that it did nothing
    UNKNOWN = "unknown"  # no response arrived; billed at most what was reserved


INTENT_LIFE_S_MAX = 86_400.0
"""Calls take minutes; a journal may look for an open one among the latest rows alone."""


@dataclass(frozen=True, slots=True)
class CallIntent:
    """A call about to be made.

    `call_key` is SHA-256 over provider, model and the whole neutral request, the same at every redelivery;
    `lives_s` is how long the call and the recording of its end may take, after which nobody waits for it any more:
    below `INTENT_LIFE_S_MAX`. `reserved_usd` is the most that it can cost, None where the model is unpriced.
    `responses_known` is how many responses to the key the buyer has seen and cannot use: it does not want to buy what
    came since. None: it buys whatever there is.
    """

    call_id: UUID
    call_key: bytes
    answer_key: AnswerKey
    stage: Stage
    provider: str
    model: str
    client_request_id: str
    lives_s: float
    reserved_usd: Decimal | None
    responses_known: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.lives_s <= INTENT_LIFE_S_MAX:
            raise ValueError(f"an intent may live up to {INTENT_LIFE_S_MAX:g} s, not {self.lives_s:g}")


@dataclass(frozen=True, slots=True)
class CallResult:
    """How a call ended. `usage`, `prices` and `cost_usd` are None where they are not known; never 0 for unknown.

    A complete call has its response in `raw`. An unknown one has no cost: its reservation bounds it. A failed one cost
    nothing unless it says otherwise.
    """

    outcome: CallOutcome
    latency_ms: int
    raw: str | None = None
    usage: CompletionUsage | None = None
    prices: UnitPrices | None = None
    cost_usd: Decimal | None = None
    provider_request_id: str | None = None
    http_status: int | None = None
    detail: str | None = None

    def __post_init__(self) -> None:
        if self.outcome is CallOutcome.INTENT:
            raise ValueError("a call does not end as an intent")
        if self.outcome is CallOutcome.COMPLETE and self.raw is None:
            raise ValueError("a complete call has a response")
        if self.outcome is CallOutcome.UNKNOWN and self.cost_usd is not None:
            raise ValueError("a call whose response never arrived has no known cost")


@dataclass(frozen=True, slots=True)
class JournaledCall:
    """A response on record."""

    call_id: UUID
    raw: str
    usage: CompletionUsage | None
    cost_usd: Decimal | None


class CallJournal(Protocol):
    """The only record of LLM calls and their cost. Needed by `judge`.

    Every method is one short transaction, grouped with others that run at the same time. It raises UnavailableError
    while the database is down, or where the outcome of a commit is unknown: calling it again is safe.
    """

    async def responses(self, call_key: bytes) -> Sequence[JournaledCall]:
        """Every response on record for this key, oldest first, whoever bought it."""
        ...

    async def open(self, intent: CallIntent) -> float | None:
        """Record the intent, durably; None when it is recorded and the call may be made.

        Otherwise the seconds that another live intent of the same key may still take: wait for its response, at most
        that long, before buying again. 0 where a response is on record beyond `responses_known`: another worker's call
        ended since, look at it. An intent past its life becomes `unknown` here. Time is the database's.
        """
        ...

    async def close(self, call_id: UUID, result: CallResult) -> None:
        """Record how the call ended, durably; closing again changes nothing.

        A response that comes after its intent was given up as `unknown` is recorded all the same: it was paid for.

        Raises:
            FatalError: no such call is on record; its cost would be lost.
        """
        ...

    async def usage_of(self, key: AnswerKey) -> Usage:
        """Every call on record for this answer together, whoever made it: what an attribution costs.

        Tokens are the sum of what is known. The cost is None when any call has none: because its model is unpriced,
        or because its response has not arrived (or never will). `calls` are those that may have been billed.
        """
        ...


class BudgetSpentError(WorkerError):
    """A budget has no room for the next call until its window ends, in `resets_in_s` seconds."""

    def __init__(self, scope: BudgetScope, resets_in_s: float) -> None:
        super().__init__(f"the {scope.value} budget is spent; it resets in {resets_in_s:.0f} s")
        self.scope = scope
        self.resets_in_s = resets_in_s


class Reservation(Protocol):
    """Money set aside for one call: settled or released once, whatever comes later changes nothing."""

    def settle(self, cost_usd: Decimal | None) -> None:
        """The call's real cost; None keeps what was reserved, as for a response that was lost."""
        ...

    def release(self) -> None:
        """The call cost nothing."""
        ...


class Budgets(Protocol):
    """Spending limits per hour and day, shared by all workers: never passed while no call costs more than reserved.

    Needed by `judge`.
    """

    async def reserve(self, tenant: TenantId, amount_usd: Decimal | None) -> Reservation:
        """Set money aside before a call; `amount_usd` is the most that it can cost, None only without any budget.

        Raises:
            BudgetSpentError: a budget would be passed; the total is named before the tenant's own.
            UnavailableError: the database is down.
            FatalError: no hour or day of the total will ever hold this amount, or a budget is set and there is none.
        """
        ...
