"""Tokens per answer of each scoring mode, beside the least that any prompt could cost.

The floor is what must be read and said once: query, answer, titles and texts of the sources, and of the verdict the key
points, the positive supports and their quotes, all as bare text without any instruction, schema, id or bracket. The
replies counted are those that a model with the expected verdict writes. Where a file brings no verdict, the local judge
gives it. Tokens are o200k's.

    python -m tests.benchmarks.bench_prompt_tokens [FILE …]

A FILE has one answer a line: `query`, `answer`, `sources` and, if it brings its verdict, `key_points` with `text`,
`support` and `quotes` by source_id.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bpe_openai
from rich.console import Console

from tests.benchmarks.__main__ import table_of
from tests.benchmarks.figure import Figure
from tests.fakes.language_model import FakeModel, Opinion, talk
from worker.core.asking import JudgingMethod, ModelLimits
from worker.core.fencing import encoded
from worker.core.judging import Judging
from worker.core.llm import CompletionRequest
from worker.core.local.judging import judging as judging_locally
from worker.core.model import Answer, AnswerId, AnswerKey, Judgement, KeyPoint, Source, SourceId, TenantId
from worker.core.model_side import ShownSource
from worker.core.prompts import Refinement, ScoringMode, Weighting, prompts_in_use

SAMPLE_ANSWERS = Path(__file__).parents[2] / "worker" / "demo" / "sample_answers.jsonl"
SECRET = b"a secret of the benchmark"
LIMITS = ModelLimits(input_tokens_max=100_000, output_tokens_max=16_000)
KEY_POINTS_MAX = 64
STATIC_TOKENS_GOAL = 580
FLOOR_RATIO_GOAL = 2.2

_encoding = bpe_openai.get_encoding("o200k_base")


def count_tokens(text: str) -> int:
    return len(_encoding.encode_ordinary(text))


@dataclass(frozen=True)
class Case:
    """An answer and the verdict that a model is expected to give."""

    answer: Answer
    key_points: tuple[KeyPoint, ...]
    opinion: Opinion


@dataclass(frozen=True)
class Tokens:
    """Of one answer, all its calls together."""

    calls: int
    read: int
    written: int

    @property
    def total(self) -> int:
        return self.read + self.written


def run(path: Path = SAMPLE_ANSWERS) -> list[Figure]:
    cases = list(cases_in(path))
    floor = mean([floor_of(case) for case in cases])
    figures = [static_figure()]
    for mode in ScoringMode:
        measured = [tokens_of(case, mode) for case in cases]
        total = mean([tokens.total for tokens in measured])
        # The goal is set for answers as they come, with sources of some hundred tokens; the samples are shorter.
        has_goal = mode is ScoringMode.ANSWER and path != SAMPLE_ANSWERS
        figures.append(
            Figure(
                name=f"tokens per answer, mode {mode}: mean of {len(cases)} answers in {path.name}",
                measured=f"{total:,.0f} ({mean([t.read for t in measured]):,.0f} in + "
                f"{mean([t.written for t in measured]):,.0f} out, {mean([t.calls for t in measured]):.1f} calls)",
                baseline=f"{floor:,.0f}: query, answer, sources and verdict once, as bare text",
                ratio=total / floor,
                goal=f"≤ {FLOOR_RATIO_GOAL} × the floor" if has_goal else "–",
                met=total <= FLOOR_RATIO_GOAL * floor if has_goal else None,
            )
        )
    return figures


def static_figure() -> Figure:
    """Instructions and schemas of both default calls: what every answer pays whatever its length."""
    prompts = prompts_in_use(Weighting.UNIFORM, Refinement.FOLDED)
    tokens = sum(count_tokens(prompt.instructions) + count_tokens(encoded(prompt.schema)) for prompt in prompts)
    return Figure(
        name="instructions and schemas of both calls",
        measured=f"{tokens} tokens",
        baseline="–",
        ratio=None,
        goal=f"≤ {STATIC_TOKENS_GOAL} tokens",
        met=tokens <= STATIC_TOKENS_GOAL,
    )


def mean(numbers: list[int]) -> float:
    return sum(numbers) / len(numbers)


def floor_of(case: Case) -> int:
    answer = case.answer
    texts = [answer.query, answer.text]
    for source in answer.sources:
        texts += [source.title or "", source.text]
    for key_point in case.key_points:
        texts.append(key_point.text)
        for source in answer.sources:
            units, quote = case.opinion(key_point.text, ShownSource("", source.text, source.title))
            texts += [f"{units / 10_000:g}", quote] if units else []
    return sum(map(count_tokens, texts))


def tokens_of(case: Case, mode: ScoringMode) -> Tokens:
    model = CountingModel(case.key_points, case.opinion)
    judging = Judging(
        case.answer,
        method=JudgingMethod(scoring_mode=mode),
        limits=LIMITS,
        secret=SECRET,
        count_tokens=count_tokens,
    )
    outcome, _ = talk(judging, model)
    # A reply that was not believed whole would have been asked for again, and the figure be of something else.
    if not isinstance(outcome, Judgement) or outcome.unevidenced:
        raise RuntimeError(f"the expected verdict on {case.answer.key.answer_id} was not believed: {outcome}")
    return Tokens(len(model.requests), sum(map(read_tokens, model.requests)), model.written)


def read_tokens(request: CompletionRequest) -> int:
    texts = (request.instructions, encoded(request.schema), request.context, request.question)
    return sum(map(count_tokens, texts))


def cases_in(path: Path) -> Iterator[Case]:
    """Every answer of the file that there is something to judge about."""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        row = json.loads(line)
        answer = answer_of(row, number)
        if answer.sources and answer.text.strip():
            yield recorded_case(row, answer) if "key_points" in row else locally_judged_case(answer)


def answer_of(row: dict[str, Any], number: int) -> Answer:
    sources = tuple(Source(SourceId(s["source_id"]), s["text"], title=s.get("title")) for s in row["sources"])
    key = AnswerKey(TenantId("benchmark"), AnswerId(str(number)))
    return Answer(key, datetime(2026, 1, 1, tzinfo=UTC), row["query"], row["answer"], sources, content_hash=b"")


def recorded_case(row: dict[str, Any], answer: Answer) -> Case:
    by_text = {key_point["text"]: key_point for key_point in row["key_points"]}
    return case_of(
        answer,
        tuple(map(KeyPoint, by_text)),
        lambda key_point, source_id: round(10_000 * by_text[key_point]["support"][source_id]),
        lambda key_point, source_id: by_text[key_point]["quotes"].get(source_id, ""),
    )


def locally_judged_case(answer: Answer) -> Case:
    steps = judging_locally(answer, KEY_POINTS_MAX)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            judgement: Judgement = stop.value
            break
    rows = {key_point.text: row for row, key_point in enumerate(judgement.key_points)}
    columns = {source.source_id: column for column, source in enumerate(answer.sources)}

    def quote_of(key_point: str, source_id: SourceId) -> str:
        quote = judgement.quotes.get((rows[key_point], columns[source_id]))
        return quote.text if quote else ""

    return case_of(
        answer,
        tuple(KeyPoint(text) for text in rows),
        lambda key_point, source_id: judgement.supports[rows[key_point]][columns[source_id]],
        quote_of,
    )


def case_of(
    answer: Answer,
    key_points: tuple[KeyPoint, ...],
    units_of: Callable[[str, SourceId], int],
    quote_of: Callable[[str, SourceId], str],
) -> Case:
    source_ids = {(source.title, source.text): source.source_id for source in answer.sources}

    def opinion(key_point: str, source: ShownSource) -> tuple[int, str]:
        source_id = source_ids[source.title, source.text]
        return units_of(key_point, source_id), quote_of(key_point, source_id)

    return Case(answer, key_points, opinion)


class CountingModel(FakeModel):
    """Counts what it writes."""

    written = 0

    def complete(self, request: CompletionRequest) -> Any:
        given = super().complete(request)
        self.written += count_tokens(given.text or "")
        return given


if __name__ == "__main__":
    for name in sys.argv[1:] or [str(SAMPLE_ANSWERS)]:
        Console().print(table_of("prompt_tokens", run(Path(name))))
