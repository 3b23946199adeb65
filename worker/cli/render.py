"""How attributions look to a person: share bars, tables, one summary line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from worker.app import RunSummary, TopicReport
from worker.core.model import UNIT_SCALE, Attribution

BAR_WIDTH = 24
PARTIAL_BLOCKS = " ▏▎▍▌▋▊▉█"
STATUS_STYLES = {"attributed": "green", "ungrounded": "yellow", "no_key_points": "dim", "no_sources": "dim"}

console = Console(highlight=False)
error_console = Console(stderr=True, highlight=False)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One source of an answer, as shown."""

    source_id: str
    owner_id: str | None
    credit_units: int
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


def percent(units: int) -> str:
    """Units of 10⁻¹² as a percentage with one decimal, rounded half up in integers."""
    tenths = (units * 1000 + UNIT_SCALE // 2) // UNIT_SCALE
    return f"{tenths // 10}.{tenths % 10} %"


def share_bar(share_units: int) -> Text:
    """A bar of eighth blocks, BAR_WIDTH characters at a share of 1."""
    eighths = (share_units * BAR_WIDTH * 8 + UNIT_SCALE // 2) // UNIT_SCALE
    full, rest = divmod(eighths, 8)
    return Text(("█" * full + (PARTIAL_BLOCKS[rest] if rest else "")).ljust(BAR_WIDTH), style="cyan")


def answer_panel(view: AnswerView) -> Table:
    """Who earned what for one answer."""
    style = STATUS_STYLES.get(view.status, "")
    title = f"[bold]{escape(view.answer_id)}[/] [dim]{escape(view.tenant)}[/]  {escape(view.query)}"
    caption = f"[{style}]{view.status}[/] · utility {percent(view.utility_units)}"
    if view.ungrounded:
        caption += "".join(f"\n[yellow]ungrounded:[/] {escape(text)}" for text in view.ungrounded)
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left", box=None, pad_edge=False)
    table.add_column("source")
    table.add_column("owner", style="dim")
    table.add_column("share", min_width=BAR_WIDTH)
    table.add_column("", justify="right")
    table.add_column("credit", justify="right")
    for line in view.sources:
        table.add_row(
            escape(line.source_id),
            escape(line.owner_id or "–"),
            share_bar(line.share_units),
            percent(line.share_units),
            percent(line.credit_units),
        )
    return table


def view_of(attribution: Attribution, ungrounded: Iterable[str]) -> AnswerView:
    answer = attribution.answer
    lines = [
        SourceLine(credit.source_id, credit.owner_id, credit.credit_units, credit.share_units)
        for credit in attribution.source_credits
    ]
    return AnswerView(
        tenant=answer.key.tenant,
        answer_id=answer.key.answer_id,
        query=answer.query,
        status=attribution.status.value,
        utility_units=attribution.utility_units,
        sources=lines,
        ungrounded=tuple(ungrounded),
    )


def topics_table(rows: Sequence[TopicReport]) -> Table:
    table = Table(title="Topics", title_justify="left")
    for heading in ("topic", "partitions", "state", "differs from the settings"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(row.topic, str(row.partitions), row.state, "\n".join(row.differences) or "–")
    return table


def run_summary(summary: RunSummary) -> str:
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(summary.outcomes.items()) if count)
    return f"Stopped cleanly after {summary.duration_s:.1f} s: {outcomes or 'no records'}."
