"""What a worker does with the database for each answer, and nothing else: looks, calls journaled, saves, the outbox."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256

from tests.benchmarks.line_events import BODIES, FULL_SIZE
from tests.benchmarks.line_runs import PreparedJudge
from worker.adapters.postgres.store import LlmAccounts, PostgresStore, open_llm_accounts, open_store
from worker.app import build_credit, code_version
from worker.calls.identity import new_call_id
from worker.codec import decode_answer, encode_attribution
from worker.core.cost import UnitPrices, cost_usd
from worker.core.llm import CompletionUsage, Stage
from worker.core.model import Answer, AnswerId, AnswerKey, Attribution, Judgement
from worker.core.records import OutboundMessage, Record
from worker.core.reuse import reuse_hash
from worker.llm_ports import CallIntent, CallOutcome, CallResult
from worker.settings import IntakeSettings, Settings

TENANT = "bench"
IN_FLIGHT = 200
CALL_LIFE_S = 120.0
PUBLISH_INTERVAL_S = 0.02
PRICES = UnitPrices(
    input=Decimal("0.25"),
    output=Decimal(2),
    cache_read=Decimal("0.025"),
    cache_write=Decimal("0.3125"),
    source="bench",
    version="1",
)
USAGE = CompletionUsage(input_tokens=1_286, output_tokens=800)

_NOW = datetime(2026, 6, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Work:
    """One answer, computed before the clock runs."""

    record: Record
    attribution: Attribution
    message: OutboundMessage

    @property
    def key(self) -> AnswerKey:
        return self.attribution.answer.key


class Computed:
    """Answers of full size under the ids that are asked for, each of its own content."""

    def __init__(self, settings: Settings) -> None:
        self._topic = settings.kafka.answers_topic
        self.judgement = FULL_SIZE.judgement()
        self._credit = build_credit(settings, PreparedJudge(self.judgement).profile)
        event = FULL_SIZE.events()
        records = [Record(self._topic, 0, number, 0, None, event(number)) for number in range(BODIES)]
        self._answers = [decode_answer(record, limits=IntakeSettings(), now=_NOW).answer for record in records]

    def work(self, ids: Sequence[str]) -> list[Work]:
        return [self._one(number, answer_id) for number, answer_id in enumerate(ids)]

    def _one(self, number: int, answer_id: str) -> Work:
        answer = self._answer(number, answer_id)
        attribution = self._credit(answer, self.judgement)
        message = encode_attribution(
            attribution, topic="attributions", source_uri="/bench", code_version=code_version(), computed_at=_NOW
        )
        record = Record(self._topic, number % 12, number, 1_780_000_000_000, None, None)
        return Work(record, attribution, message)

    def _answer(self, number: int, answer_id: str) -> Answer:
        like = self._answers[number % BODIES]
        content_hash = sha256(answer_id.encode()).digest()
        key = AnswerKey(like.key.tenant, AnswerId(answer_id))
        return replace(like, key=key, query=f"{like.query} {answer_id}", content_hash=content_hash)


class Responses:
    """The two calls of an answer: what they say is as long as what a model says of these answers."""

    def __init__(self, judgement: Judgement) -> None:
        points = [point.text for point in judgement.key_points]
        quotes = [[row, column, quote.text] for (row, column), quote in judgement.quotes.items()]
        self._by_stage = {Stage.DECOMPOSE: json.dumps(points), Stage.SCORE: json.dumps(quotes)}

    def calls_of(self, key: AnswerKey) -> Iterator[tuple[CallIntent, CallResult]]:
        for stage, raw in self._by_stage.items():
            call_id = new_call_id(datetime.now(UTC))
            intent = CallIntent(
                call_id=call_id,
                call_key=sha256(f"{key.answer_id} {stage}".encode()).digest(),
                answer_key=key,
                stage=stage,
                provider="openai",
                model="gpt-5-mini",
                client_request_id=str(call_id),
                lives_s=CALL_LIFE_S,
                reserved_usd=Decimal("0.01"),
                responses_known=0,
            )
            cost = cost_usd(USAGE, PRICES)
            end = CallResult(CallOutcome.COMPLETE, latency_ms=1_234, raw=raw, usage=USAGE, prices=PRICES, cost_usd=cost)
            yield intent, end


class Saving:
    """The stores of one worker on one database."""

    def __init__(self, store: PostgresStore, accounts: LlmAccounts, responses: Responses) -> None:
        self.store = store
        self.accounts = accounts
        self._responses = responses

    async def local(self, work: Work) -> None:
        """As with a judge that costs nothing."""
        assert await self.store.find(work.key, work.record) is None
        await self.store.save(work.attribution, work.message)

    async def bought(self, work: Work) -> None:
        """As with a language model: is there a judgement to copy, two calls with all that is asked around them."""
        answer, journal = work.attribution.answer, self.accounts.journal
        assert await self.store.find(work.key, work.record) is None
        assert self.accounts.judgements is not None
        content = reuse_hash(answer, work.attribution.method.method_hash)
        assert await self.accounts.judgements.find_judgement(work.key.tenant, content) is None
        for intent, end in self._responses.calls_of(work.key):
            assert not await journal.responses(intent.call_key)
            assert await journal.open(intent) is None
            await journal.close(intent.call_id, end)
        usage = await journal.usage_of(work.key)
        judgement = replace(work.attribution.judgement, usage=usage)
        await self.store.save(replace(work.attribution, judgement=judgement), work.message)

    async def publish(self) -> int:
        """Claim a batch as the relay does, and take it for published."""
        async with self.store.claim(500) as rows:
            return len(rows)


@asynccontextmanager
async def open_saving(settings: Settings, computed: Computed, *, remembers: bool) -> AsyncIterator[Saving]:
    """With `remembers` a save enters its judgement to be copied, as it does after calls were bought."""
    async with (
        open_store(settings, code_version=code_version(), remembers_judgements=remembers) as store,
        open_llm_accounts(store, settings) as accounts,
    ):
        yield Saving(store, accounts, Responses(computed.judgement))


async def save_all(saving: Saving, works: Sequence[Work], *, bought: bool) -> float:
    """Seconds until everything is saved and out of the outbox, `IN_FLIGHT` answers at once."""
    waiting = iter(works)
    saved = asyncio.Event()

    async def save_next() -> None:
        for work in waiting:
            await (saving.bought(work) if bought else saving.local(work))

    async def save_everything() -> None:
        async with asyncio.TaskGroup() as savers:
            for _ in range(IN_FLIGHT):
                savers.create_task(save_next())
        saved.set()

    began_s = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(save_everything())
        while not saved.is_set():
            # So seldom that batches are as full as the worker's.
            await asyncio.sleep(PUBLISH_INTERVAL_S)
            await saving.publish()
    while await saving.publish():
        pass
    return time.perf_counter() - began_s
