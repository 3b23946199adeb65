"""Answers as a language model is asked about them, and a whole judging through a provider."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import SecretStr

from worker.adapters.llm.open_provider import open_provider
from worker.adapters.llm.tokens import count_tokens
from worker.core.asking import Asker, JudgingMethod, ModelLimits
from worker.core.conversation import Incomplete
from worker.core.fencing import show
from worker.core.judging import Judging
from worker.core.llm import CompletionRequest
from worker.core.matrix import cells_of
from worker.core.model import Answer, AnswerId, AnswerKey, Judgement, KeyPoint, Source, SourceId, TenantId
from worker.embedded.llm_emulator.emulator import LlmEmulator
from worker.llm_ports import Provider

SECRET = b"sixteen bytes or"
API_KEY = "sk-do-not-tell-anyone"
TIMEOUT_S = 30.0

SENTENCES = tuple(f"Harbour {number} has {number + 1} trams and {number + 2} grey seals." for number in range(40))
LIMITS = ModelLimits(input_tokens_max=100_000, output_tokens_max=16_000)


@dataclass(frozen=True)
class Dialect:
    """A provider as tests speak of it: its model takes everything."""

    provider: str
    model: str


OPENAI = Dialect("openai", "gpt-4.1-mini")
ANTHROPIC = Dialect("anthropic", "claude-haiku-4-5")
DIALECTS = (OPENAI, ANTHROPIC)


def harbour_answer(answer_id: str = "a-1", *, sentences: int = 3, sources: int = 3, sentences_each: int = 4) -> Answer:
    """States some sentences, which its sources state in part."""
    return Answer(
        key=AnswerKey(TenantId("t"), AnswerId(answer_id)),
        occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
        query="What do the harbours have?",
        text=" ".join(SENTENCES[:sentences]),
        sources=tuple(
            Source(SourceId(f"source {number}"), " ".join(SENTENCES[number : number + sentences_each]))
            for number in range(sources)
        ),
        content_hash=b"",
    )


def decompose_request(answer: Answer | None = None) -> CompletionRequest:
    return _asker(answer or harbour_answer()).decompose()


def score_request(answer: Answer | None = None) -> CompletionRequest:
    """All sources and sentences of the answer in one call."""
    answer = answer or harbour_answer()
    key_points = [KeyPoint(sentence) for sentence in SENTENCES if sentence in answer.text]
    (asked,) = _asker(answer).score(key_points, cells_of(len(key_points), len(answer.sources)))
    return asked.request


def _asker(answer: Answer) -> Asker:
    return Asker(show(answer, SECRET), JudgingMethod(), LIMITS, count_tokens)


def base_url_of(dialect: Dialect, emulator: LlmEmulator) -> str:
    return {"openai": emulator.openai_base_url, "anthropic": emulator.anthropic_base_url}[dialect.provider]


@asynccontextmanager
async def provider_on(
    emulator: LlmEmulator, dialect: Dialect, *, model: str | None = None, connections_max: int = 300
) -> AsyncIterator[Provider]:
    async with open_provider(
        dialect.provider,
        model or dialect.model,
        SecretStr(API_KEY),
        base_url_of(dialect, emulator),
        connections_max,
    ) as provider:
        yield provider


async def judged_by(
    provider: Provider, answer: Answer, method: JudgingMethod | None = None, limits: ModelLimits = LIMITS
) -> Judgement | Incomplete:
    """The outcome of a judging, its requests sent one after the other."""
    judging = Judging(answer, method=method or JudgingMethod(), limits=limits, secret=SECRET, count_tokens=count_tokens)
    while judging.outcome is None:
        for request in judging.requests_to_send():
            reply = await provider.complete(request, client_request_id="judged", timeout_s=TIMEOUT_S)
            judging.accept(request, provider.read(reply.raw, request))
    return judging.outcome
