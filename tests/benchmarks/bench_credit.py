"""Exact credit beside Python's own sort of the same rows, and beside the paper's Algorithm 1 as printed."""

import gc
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise
from math import log2
from statistics import median
from time import perf_counter_ns, thread_time_ns

from tests.benchmarks.figure import Figure
from worker.core.credit import compute_credit, exact_credit
from worker.core.model import SUPPORT_SCALE

Matrix = list[list[int]]
Clock = Callable[[], int]
Rows = Callable[[random.Random, int], list[int]]

RUBRIC = (0, 3_000, 7_000, 10_000)
SEED = 20_260_101
KEY_POINTS = 20
CELLS_MIN_FOR_PROCESSOR_TIME = 1_000
TEXTBOOK_CHECKED_MAX = 100
ONE_ANSWER_GOAL = 8.0
MANY_SOURCES_GOAL = 10.0
GROWTH_GOAL = 1.2
"""Time per m log m at the larger m over that at the smaller: 1 is growth m log m; the rest is caches."""


def rubric_row(rng: random.Random, source_count: int) -> list[int]:
    return [rng.choice(RUBRIC) for _ in range(source_count)]


def distinct_row(rng: random.Random, source_count: int) -> list[int]:
    return rng.sample(range(SUPPORT_SCALE + 1), source_count)


KINDS: dict[str, Rows] = {"rubric": rubric_row, "all distinct": distinct_row}


def run() -> list[Figure]:
    """One answer of 8 × 10, then 20 key points by 100, 500 and 2,000 sources; about 15 s."""
    figures = []
    with quiet_collector():
        for kind, row in KINDS.items():
            seconds = {}
            figure, _ = beside_sorting(f"8 × 10, {kind}", row, 8, 10, answers=4_000, goal=ONE_ANSWER_GOAL)
            figures.append(figure)
            for source_count, answers in ((100, 200), (500, 60), (2_000, 25)):
                goal = MANY_SOURCES_GOAL if source_count == 500 else None
                name = f"{KEY_POINTS} × {source_count}, {kind}"
                figure, seconds[source_count] = beside_sorting(
                    name, row, KEY_POINTS, source_count, answers=answers, goal=goal
                )
                figures.append(figure)
            figures += growth(kind, seconds)
        figures += [beside_the_textbook(source_count, runs) for source_count, runs in ((10, 50), (100, 3), (500, 1))]
    return figures


def beside_sorting(
    name: str, row: Rows, key_points: int, source_count: int, *, answers: int, goal: float | None
) -> tuple[Figure, float]:
    """Medians over fresh answers, each sorted once and credited once, in turn; and the credit's median in ns.

    Answers come one at a time, as a worker gets them: sorting in a tight loop would be faster than it ever is there.
    """
    # Processor time leaves out what a busy machine gives to others, but reading it takes about 1 µs.
    clock = perf_counter_ns if key_points * source_count < CELLS_MIN_FOR_PROCESSOR_TIME else thread_time_ns
    rng = random.Random(SEED)
    sorting, crediting = [], []
    for _ in range(answers):
        supports = [row(rng, source_count) for _ in range(key_points)]
        sorting.append(elapsed_ns(sort_rows, decoded(supports), clock))
        crediting.append(elapsed_ns(compute_credit, decoded(supports), clock))
    ratio = median(crediting) / median(sorting)
    figure = Figure(
        name=f"credit and shares, {name}",
        measured=shown(median(crediting)),
        baseline=f"{shown(median(sorting))} sorted() of its rows",
        ratio=ratio,
        goal="" if goal is None else f"≤ {goal:g} ×",
        met=None if goal is None else ratio <= goal,
    )
    return figure, median(crediting)


def growth(kind: str, credit_ns: dict[int, float]) -> list[Figure]:
    figures = []
    counts = sorted(credit_ns)
    for smaller, larger in pairwise(counts):
        measured = credit_ns[larger] / credit_ns[smaller]
        expected = larger * log2(larger) / (smaller * log2(smaller))
        figures.append(
            Figure(
                name=f"growth from {smaller} to {larger} sources, {kind}",
                measured=f"{measured:.2f} × the time",
                baseline=f"{expected:.2f} × by m log m",
                ratio=measured / expected,
                goal=f"≤ {GROWTH_GOAL:g} ×",
                met=measured / expected <= GROWTH_GOAL,
            )
        )
    return figures


def beside_the_textbook(source_count: int, runs: int) -> Figure:
    """One key point: Algorithm 1 in floats, which it is fastest in, and our exact φ, units included."""
    rng = random.Random(SEED)
    ours, textbook = [], []
    for _ in range(runs):
        row = distinct_row(rng, source_count)
        ours.append(elapsed_ns(compute_credit, [row]))
        textbook.append(elapsed_ns(algorithm_1_of, [row]))
        if source_count <= TEXTBOOK_CHECKED_MAX:
            check(row)
    return Figure(
        name=f"one key point of {source_count} sources",
        measured=shown(median(ours)),
        baseline=f"{shown(median(textbook))} Algorithm 1 of the paper, O(m³)",
        ratio=median(ours) / median(textbook),
        goal="",
        met=None,
    )


def algorithm_1(supports: list[float]) -> list[float]:
    """Max-sum Shapley of one key point by its definition over pairs, one sum per source, pair and coalition size.

    The best of a coalition is source k alone, ranked r by support: a coalition of size s + 1 whose others all rank
    below it. A source's marginal over the coalition's best is the gap between the two supports.
    """
    count = len(supports)
    order = sorted(range(count), key=supports.__getitem__)
    ranked = [supports[i] for i in order]
    credit = [0.0] * count
    for place, source in enumerate(order):
        total = ranked[place] / count
        for best in range(place):
            # Coalitions of `size` whose best is `best`: it, and size - 1 of the `best` sources ranked below it.
            chance = 1.0 / (count * (count - 1)) if count > 1 else 0.0
            for size in range(1, best + 2):
                if size > 1:
                    chance *= (best - size + 2) * size / ((size - 1) * (count - size))
                total += chance * (ranked[place] - ranked[best])
        credit[source] = total
    return credit


def algorithm_1_of(supports: Matrix) -> list[list[float]]:
    return [algorithm_1([support / SUPPORT_SCALE for support in row]) for row in supports]


def check(row: list[int]) -> None:
    """A baseline that computes something else would prove nothing."""
    (textbook,) = algorithm_1_of([row])
    numerators, denominator = exact_credit([row])
    exact = [float(Fraction(numerator, denominator)) for numerator in numerators]
    if any(abs(a - b) > 1e-9 for a, b in zip(exact, textbook, strict=True)):
        raise AssertionError("Algorithm 1 and the exact credit differ")


def sort_rows(supports: Matrix) -> list[list[int]]:
    return [sorted(row) for row in supports]


def decoded(supports: Matrix) -> Matrix:
    """A copy with integers of its own, as decoding makes them: neither side warms the caches for the other."""
    copy: Matrix = json.loads(json.dumps(supports))
    return copy


def elapsed_ns(work: Callable[[Matrix], object], supports: Matrix, clock: Clock = thread_time_ns) -> int:
    started = clock()
    work(supports)
    return clock() - started


@contextmanager
def quiet_collector() -> Iterator[None]:
    """No garbage collection while measuring, as in timeit."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def shown(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e3:.1f} µs" if nanoseconds < 1e6 else f"{nanoseconds / 1e6:.2f} ms"
