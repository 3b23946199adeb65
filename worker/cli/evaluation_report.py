"""How evaluated answers are summed up and shown: a table for people, JSON lines for programs."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from operator import attrgetter
from typing import Any

from rich.table import Table

from worker.core.evaluation import MatrixScores, Ranking, mean_scores

RECORDED = "recorded"
"""Stands where a judge's name does when the matrix was in the file."""

DECIMALS = 4


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One answer scored from one matrix; the duration is None when the matrix was recorded, not judged now.

    `cost_usd` is None when a call was unpriced.
    """

    dataset: str
    judge: str
    query_id: str
    scores: MatrixScores
    duration_s: float | None = None
    cost_usd: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """The means over one data set and judge, as printed; None where it is not known."""

    dataset: str
    judge: str
    queries: int
    jaccard_at_k: dict[Ranking, float]
    ms_per_answer: float | None
    usd_per_answer: Decimal | None


def summaries(evaluated: Iterable[Evaluated]) -> list[Summary]:
    """One per data set and judge, data sets in alphabetical order, the judge before what is recorded."""
    ordered = sorted(evaluated, key=lambda one: (one.dataset, one.judge == RECORDED))
    groups = groupby(ordered, key=attrgetter("dataset", "judge"))
    return [_summary(dataset, judge, list(members)) for (dataset, judge), members in groups]


def _summary(dataset: str, judge: str, members: Sequence[Evaluated]) -> Summary:
    durations_s = [one.duration_s for one in members if one.duration_s is not None]
    costs_usd = [one.cost_usd for one in members if one.cost_usd is not None]
    count = len(members)
    return Summary(
        dataset,
        judge,
        count,
        rounded(mean_scores(one.scores for one in members)),
        round(1000 * sum(durations_s) / count, 3) if len(durations_s) == count else None,
        sum(costs_usd, Decimal(0)) / count if len(costs_usd) == count else None,
    )


def rounded(scores: dict[Ranking, Any]) -> dict[Ranking, float]:
    return {ranking: round(float(score), DECIMALS) for ranking, score in scores.items()}


def json_lines(evaluated: Sequence[Evaluated], *, verbose: bool) -> Iterator[str]:
    """A line per answer if verbose, then a line per data set and judge, told apart by `query_id` and `queries`."""
    for one in evaluated if verbose else ():
        scores = rounded(dict(one.scores.jaccard_at_k))
        yield json.dumps(
            {"dataset": one.dataset, "judge": one.judge, "query_id": one.query_id, "k": one.scores.relevant_count}
            | {"jaccard_at_k": scores}
        )
    for summary in summaries(evaluated):
        yield json.dumps(
            {
                "dataset": summary.dataset,
                "judge": summary.judge,
                "queries": summary.queries,
                "jaccard_at_k": summary.jaccard_at_k,
                "ms_per_answer": summary.ms_per_answer,
                "usd_per_answer": None if summary.usd_per_answer is None else str(summary.usd_per_answer),
            }
        )


def tables(evaluated: Sequence[Evaluated], *, verbose: bool) -> Iterator[Table]:
    if verbose:
        table = _table("Jaccard@K of each answer", ("data set", "judge", "query", "K"))
        for one in evaluated:
            scores = rounded(dict(one.scores.jaccard_at_k))
            table.add_row(one.dataset, one.judge, one.query_id, str(one.scores.relevant_count), *_cells(scores))
        yield table
    table = _table("Mean Jaccard@K, milliseconds and USD an answer", ("data set", "judge", "answers"))
    for heading in ("ms", "USD"):
        table.add_column(heading, justify="right", no_wrap=True)
    for summary in summaries(evaluated):
        table.add_row(
            summary.dataset,
            summary.judge,
            str(summary.queries),
            *_cells(summary.jaccard_at_k),
            "–" if summary.ms_per_answer is None else f"{summary.ms_per_answer:.2f}",
            "–" if summary.usd_per_answer is None else f"{summary.usd_per_answer:f}",
        )
    yield table


def _table(title: str, headings: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading != "query")
    for heading in ("max-sum", "leave-one-out", "random"):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cells(scores: dict[Ranking, float]) -> list[str]:
    return [f"{scores[ranking]:.{DECIMALS}f}" for ranking in Ranking]
