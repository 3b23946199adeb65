"""How attributions look to a person: share bars, tables, one summary line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from worker.adapters.kafka.topics import TopicReport
from worker.app import RunSummary
from worker.core.model import UNIT_SCALE, Attribution

BAR_WIDTH = 24
NAME_WIDTH = 12
OWNER_WIDTH = 26
PARTIAL_BLOCKS = " ▏▎▍▌▋▊▉█"
STATUS_WORDS = {
    "attributed": "[green]attributed[/]",
    "ungrounded": "[yellow]ungrounded[/]: no source supports any of it, nobody earns",
    "no_key_points": "[dim]no key points[/]: it claims nothing, nobody earns",
    "no_sources": "[dim]no sources[/]: it named none",
}

console = Console(highlight=False)
error_console = Console(stderr=True, highlight=False)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One source of an answer, as shown."""

    source_id: str
    owner_id: str | None
    share_units: int


@dataclass(frozen=True, slots=True)
class AnswerView:
    """One attributed answer, as shown; `ungrounded` are the texts of key points no source states well enough."""

    tenant: str
    answer_id: str
    query: str
    status: str
    utility_units: int
    sources: Sequence[SourceLine]
    ungrounded: Sequence[str]
    reward: str | None = None


def percent(units: int) -> str:
    """Units of 10⁻¹² as a percentage with one decimal, rounded half up in integers."""
    tenths = (units * 1000 + UNIT_SCALE // 2) // UNIT_SCALE
    return f"{tenths // 10}.{tenths % 10} %"


def share_bar(share_units: int) -> Text:
    """A bar of eighth blocks, BAR_WIDTH characters at a share of 1."""
    eighths = (share_units * BAR_WIDTH * 8 + UNIT_SCALE // 2) // UNIT_SCALE
    full, rest = divmod(eighths, 8)
    return Text(("█" * full + (PARTIAL_BLOCKS[rest] if rest else "")).ljust(BAR_WIDTH), style="cyan")


def decimal_of(units: int) -> str:
    """Units of 10⁻¹² as a decimal of three places, rounded half up in integers."""
    thousandths = (units * 1000 + UNIT_SCALE // 2) // UNIT_SCALE
    return f"{thousandths // 1000}.{thousandths % 1000:03d}"


def answer_panel(view: AnswerView) -> Group:
    """Who earned what for one answer: the query, a bar per source, and what nobody supports."""
    parts: list[RenderableType] = [
        f"[bold]{escape(view.query)}[/]  [dim]{escape(view.tenant)}/{escape(view.answer_id)}[/]"
    ]
    if view.sources:
        parts.append(Padding(share_table(view.sources), (0, 0, 0, 2)))
    verdict = STATUS_WORDS.get(view.status, view.status)
    if view.status == "attributed":
        verdict += f" · {percent(view.utility_units)} of it is supported"
    if view.reward:
        verdict += f" · {escape(view.reward)} to share"
    parts.append(Padding(verdict, (0, 0, 0, 2)))
    parts += [Padding(f"[yellow]ungrounded:[/] {escape(text)}", (0, 0, 0, 2)) for text in view.ungrounded]
    return Group(*parts)


def share_table(sources: Sequence[SourceLine]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(width=NAME_WIDTH, overflow="ellipsis", no_wrap=True)
    table.add_column(width=OWNER_WIDTH, overflow="ellipsis", no_wrap=True, style="dim")
    table.add_column(width=BAR_WIDTH, no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for line in sources:
        share = percent(line.share_units)
        table.add_row(escape(line.source_id), escape(line.owner_id or "–"), share_bar(line.share_units), share)
    return table


def view_of(attribution: Attribution, ungrounded: Iterable[str]) -> AnswerView:
    answer = attribution.answer
    lines = [SourceLine(credit.source_id, credit.owner_id, credit.share_units) for credit in attribution.source_credits]
    return AnswerView(
        tenant=answer.key.tenant,
        answer_id=answer.key.answer_id,
        query=answer.query,
        status=attribution.status.value,
        utility_units=attribution.utility_units,
        sources=lines,
        ungrounded=tuple(ungrounded),
        reward=None if answer.reward is None else f"{answer.reward.amount:f} {answer.reward.currency}",
    )


def topics_table(rows: Sequence[TopicReport]) -> Table:
    table = Table(title="Topics", title_justify="left")
    for heading in ("topic", "state", "differs from the settings"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        state = "created" if row.created else "exists"
        table.add_row(row.topic, state, "\n".join(row.differences) or "–")
    return table


def run_summary(summary: RunSummary) -> str:
    outcomes = ", ".join(f"{count} {outcome.value}" for outcome, count in sorted(summary.outcomes.items()))
    return f"Stopped cleanly: {outcomes or 'no records'}."
