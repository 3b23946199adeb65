"""How attributions look to a person: share bars, one line of facts, what nobody supports."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from worker.cli.terminal import plain
from worker.core.model import UNIT_SCALE, Attribution
from worker.core.outcome import Outcome

BAR_WIDTH = 24
NAME_WIDTH = 12
OWNER_WIDTH = 26
PERCENT_WIDTH = 7
PARTIAL_BLOCKS = " ▏▎▍▌▋▊▉"
NOBODY = "-"
STATUS_WORDS = {
    "attributed": "[green]attributed[/]",
    "ungrounded": "[yellow]ungrounded[/]: no source supports any of it, nobody earns",
    "no_key_points": "[dim]no key points[/]: it claims nothing, nobody earns",
    "no_sources": "[dim]no sources[/]: it named none",
}


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


@dataclass(frozen=True, slots=True)
class Bar:
    """BAR_WIDTH characters at a part of 1, in eighths of a character where the encoding has them."""

    units: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        eighths = (self.units * BAR_WIDTH * 8 + UNIT_SCALE // 2) // UNIT_SCALE
        full, rest = divmod(eighths, 8)
        if options.ascii_only:
            drawn = "#" * (full + (rest >= 4))
        else:
            drawn = "█" * full + (PARTIAL_BLOCKS[rest] if rest else "")
        yield Text(drawn.ljust(BAR_WIDTH), style="cyan", end="")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(BAR_WIDTH, BAR_WIDTH)


def percent(units: int) -> str:
    """Units of 10⁻¹² as a percentage with one decimal, rounded half up in integers."""
    tenths = (units * 1000 + UNIT_SCALE // 2) // UNIT_SCALE
    return f"{tenths // 10}.{tenths % 10} %"


def decimal_of(units: int) -> str:
    """Units of 10⁻¹² as a decimal of three places, rounded half up in integers."""
    thousandths = (units * 1000 + UNIT_SCALE // 2) // UNIT_SCALE
    return f"{thousandths // 1000}.{thousandths % 1000:03d}"


def money(amount: Decimal, currency: str | None) -> str:
    """An amount with two decimals, or with as many more as it has."""
    exact = amount.normalize()
    decimals = max(2, -int(exact.as_tuple().exponent))
    return f"{exact:.{decimals}f} {currency or ''}".strip()


def answer_panel(view: AnswerView) -> Group:
    """Who earned what for one answer: the query, a bar per source, and what nobody supports."""
    parts: list[RenderableType] = [f"[bold]{plain(view.query) or '(no query stored)'}[/]"]
    if view.sources:
        parts.append(_indented(share_table(view.sources)))
    verdict = STATUS_WORDS.get(view.status, view.status)
    if view.status == "attributed":
        verdict += f", {percent(view.utility_units)} of it is supported"
    if view.reward:
        verdict += f", {plain(view.reward)} to share"
    parts.append(_indented(f"{verdict}  [dim]({plain(view.tenant)}/{plain(view.answer_id)})[/]"))
    parts += [_indented(f"[yellow]ungrounded:[/] {plain(text)}") for text in view.ungrounded]
    return Group(*parts)


def share_table(sources: Sequence[SourceLine]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(width=NAME_WIDTH, overflow="ellipsis", no_wrap=True)
    table.add_column(width=OWNER_WIDTH, overflow="ellipsis", no_wrap=True, style="dim")
    table.add_column(width=BAR_WIDTH, no_wrap=True)
    table.add_column(width=PERCENT_WIDTH, justify="right", no_wrap=True)
    for line in sources:
        table.add_row(
            plain(line.source_id), plain(line.owner_id or NOBODY), Bar(line.share_units), percent(line.share_units)
        )
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
        reward=None if answer.reward is None else money(answer.reward.amount, answer.reward.currency),
    )


def outcomes_told(outcomes: Mapping[Outcome, int]) -> str:
    return ", ".join(f"{count} {outcome.value}" for outcome, count in sorted(outcomes.items()))


def _indented(content: RenderableType) -> Padding:
    return Padding(content, (0, 0, 0, 2))
