"""An LLM judge on fakes, in virtual time: everything around it in sight."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from functools import wraps
from typing import Any

from tests.fakes.budgets import NOON, FakeBooks, FakeBudgets
from tests.fakes.journal import FakeCallJournal
from tests.fakes.language_model import FakeModel
from tests.fakes.provider import MODEL, FakePrices, FakeProvider
from tests.support import samples
from tests.support.limiters import EpochClock
from tests.support.virtual_time import run_in_virtual_time
from worker.calls import Asking, Calls
from worker.core.asking import JudgingMethod, ModelLimits
from worker.core.breaker import CircuitBreaker
from worker.core.buckets import SECOND_NS
from worker.core.budget import Limits
from worker.core.charging import OPENAI_CHARGING
from worker.core.cost import UnitPrices
from worker.core.llm import CompletionRequest, Stage
from worker.core.model import Answer, AnswerId, AnswerKey, KeyPoint, Source, SourceId, TenantId
from worker.core.model_side import ShownSource
from worker.core.prompts import ScoringMode
from worker.limiter import Limiter
from worker.llm_judge import LlmJudge
from worker.llm_ports import CallOutcome
from worker.settings import LimiterSettings, LlmSettings
from worker.telemetry import Telemetry

SECRET = b"sixteen bytes or more"
PRICES = UnitPrices(Decimal(1), Decimal(4), Decimal("0.1"), Decimal("1.25"), source="test", version="1")
ROOMY = ModelLimits(input_tokens_max=1_000_000, output_tokens_max=100_000)
KEY_POINTS = (KeyPoint("Tea is a hot drink."), KeyPoint("Coffee comes from beans."))
TEXTS = ("Tea is a hot drink in most of the world.", "Coffee comes from beans of a shrub.", "The moon is round.")
SUPPORTS = ((10_000, 3_000, 0), (0, 7_000, 0))


def answer(answer_id: str = "a-1", tenant: str = "default") -> Answer:
    sources = tuple(Source(SourceId(f"doc-{index}"), text) for index, text in enumerate(TEXTS))
    return replace(samples.answer(), key=AnswerKey(TenantId(tenant), AnswerId(answer_id)), sources=sources)


def opinion(key_point: str, source: ShownSource) -> tuple[int, str]:
    """The matrix SUPPORTS, each support quoted by the first three words of its source."""
    row = [point.text for point in KEY_POINTS].index(key_point)
    return SUPPORTS[row][TEXTS.index(source.text)], " ".join(source.text.split()[:3])


def count_words(text: str) -> int:
    return len(text.split())


def request(name: str = "one") -> CompletionRequest:
    return CompletionRequest(Stage.DECOMPOSE, "instructions", "", name, "schema", {}, output_tokens_max=100)


class TimedJournal(FakeCallJournal):
    """Its clock is the running loop's."""

    def _reach(self) -> None:
        self.now_s = asyncio.get_running_loop().time()
        super()._reach()


@dataclass
class Desk:
    """One worker's judge. Desks that share journal and books are as many workers. Needs a running loop."""

    model: FakeModel = field(default_factory=lambda: FakeModel(KEY_POINTS, opinion))
    provider: FakeProvider = field(init=False)
    journal: TimedJournal = field(default_factory=TimedJournal)
    books: FakeBooks = field(default_factory=FakeBooks)
    budget_limits: Limits = field(default_factory=Limits)
    prices: FakePrices = field(default_factory=lambda: FakePrices(PRICES))
    llm: LlmSettings = field(default_factory=LlmSettings)
    limits: LimiterSettings = field(default_factory=LimiterSettings)
    scoring_mode: ScoringMode = ScoringMode.ANSWER
    attempts_max: int = 5

    def __post_init__(self) -> None:
        self.provider = FakeProvider(self.model)
        self.telemetry = Telemetry()
        self.budgets = FakeBudgets(self.budget_limits, books=self.books)
        self.breaker = CircuitBreaker(failures_max=5, open_ns=15 * SECOND_NS)
        self.limiter = Limiter(
            model=MODEL,
            settings=self.limits,
            rule=OPENAI_CHARGING,
            breaker=self.breaker,
            clock=EpochClock(),
            jitter=lambda: 0.0,
        )
        self.calls = Calls(
            provider=self.provider,
            limiter=self.limiter,
            journal=self.journal,
            budgets=self.budgets,
            prices=self.prices,
            settings=self.llm,
            count_tokens=count_words,
            telemetry=self.telemetry,
            monotonic=now_s,
            now=lambda: NOON + timedelta(seconds=now_s()),
            jitter=lambda: 0.5,
        )
        self.judge = LlmJudge(
            provider=self.provider,
            calls=self.calls,
            journal=self.journal,
            method=JudgingMethod(scoring_mode=self.scoring_mode),
            limits=ROOMY,
            secret=SECRET,
            attempts_max=self.attempts_max,
            count_tokens=count_words,
            telemetry=self.telemetry,
        )

    def outcomes(self) -> Counter[CallOutcome]:
        return Counter(row.outcome for row in self.journal.rows.values())

    def leaks(self) -> dict[str, object]:
        """What is still held although nobody makes a call; empty when all was given back."""
        state = self.limiter.state()
        held = {
            "slots": state.account.calls_in_flight,
            "line": state.waiting,
            "claims": len(self.journal.claims),
            "reserved": sum((lease.reserved for lease in self.budgets.leases.values()), Decimal(0)),
            "calls": self.provider.in_flight,
        }
        return {name: amount for name, amount in held.items() if amount}


def asking(answer_id: str = "a-1", tenant: str = "default", admission: int = 0) -> Asking:
    return Asking(AnswerKey(TenantId(tenant), AnswerId(answer_id)), admission)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Makes a test of a coroutine, on a clock that jumps."""

    @wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        run_in_virtual_time(test(*args, **kwargs))

    return run


async def together(*coroutines: Coroutine[Any, Any, Any]) -> Sequence[Any]:
    """Their results; an exception of one is its result."""

    async def one(coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await coroutine
        except Exception as error:  # noqa: BLE001  # a result like any other
            return error

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one(coroutine)) for coroutine in coroutines]
    return [task.result() for task in running]
