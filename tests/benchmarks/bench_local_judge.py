"""The local judge per (key point, source) pair, beside bare set intersection of words that were split beforehand."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random

from tests.benchmarks.figure import Figure
from worker.core.local.judging import judging
from worker.core.local.steps import returned
from worker.core.model import Answer, AnswerId, AnswerKey, Source, SourceId, TenantId

ROUNDS = 5
VOCABULARY = 4_000
WORDS_PER_SENTENCE = 16
SIZES = (
    # name, key points, sources, sentences a source
    ("8 key points × 10 sources of 1 KB", 8, 10, 9),
    ("20 key points × 100 sources of 2 KB", 20, 100, 18),
    ("64 key points × 500 sources of 1.5 KB", 64, 500, 13),
)
PAIR_US_MAX = 1_000


def run() -> list[Figure]:
    random = Random(1)
    return [figure_of(random, *size) for size in SIZES]


def figure_of(random: Random, name: str, key_points: int, sources: int, sentences: int) -> Figure:
    answer = answer_of(random, key_points, sources, sentences)
    pairs = key_points * sources
    key_point_words = [set(sentence.split()) for sentence in answer.text.split(". ")]
    source_words = [set(source.text.split()) for source in answer.sources]
    pair_us = fastest_s(lambda: returned(judging(answer, key_points))) / pairs * 1e6
    baseline_us = fastest_s(lambda: [[len(a & b) for b in source_words] for a in key_point_words]) / pairs * 1e6
    return Figure(
        name=name,
        measured=f"{pair_us:.1f} µs a pair ({pair_us * pairs / 1000:.1f} ms an answer), reading included",
        baseline=f"{baseline_us:.2f} µs: intersecting sets made beforehand",
        ratio=pair_us / baseline_us,
        goal=f"< {PAIR_US_MAX} µs a pair",
        met=pair_us < PAIR_US_MAX,
    )


def answer_of(random: Random, key_points: int, sources: int, sentences: int) -> Answer:
    words = ["".join(random.choices("abcdefghijklmnoprstu", k=random.randint(3, 9))) for _ in range(VOCABULARY)]

    def text(count: int) -> str:
        return " ".join(" ".join(random.choices(words, k=WORDS_PER_SENTENCE)).capitalize() + "." for _ in range(count))

    return Answer(
        key=AnswerKey(TenantId("bench"), AnswerId("bench")),
        occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
        query="",
        text=text(key_points),
        sources=tuple(Source(SourceId(f"s{number}"), text(sentences)) for number in range(sources)),
        content_hash=b"",
    )


def fastest_s(work: Callable[[], object]) -> float:
    """The best of several rounds: what the work costs when nothing else disturbs it."""
    durations_s = []
    for _ in range(ROUNDS):
        started_s = time.perf_counter()
        work()
        durations_s.append(time.perf_counter() - started_s)
    return min(durations_s)
