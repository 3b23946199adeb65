"""What a first run shows: who earned what, what is ungrounded, what it cost, how fast, and the same from SQL."""

from collections.abc import Mapping
from decimal import Decimal

from rich.table import Table

from worker.app import Facts
from worker.cli.render import (
    BAR_WIDTH,
    OWNER_WIDTH,
    AnswerView,
    Bar,
    SourceLine,
    answer_panel,
    decimal_of,
    money,
    outcomes_told,
)
from worker.cli.terminal import console, plain
from worker.core.model import UNIT_SCALE
from worker.demo.first_run import LOOK_FURTHER, FirstRun, sample_order


def show(result: FirstRun) -> None:
    facts = result.facts
    console.print()
    for view in views_of(facts):
        console.print(answer_panel(view))
        console.print()
    console.print(owners_table(facts))
    console.print()
    console.print(facts_table(result))
    console.print()
    console.print("[bold]The same in SQL[/], from the view owner_credit_daily:")
    console.print(f"  {LOOK_FURTHER}", soft_wrap=True, markup=False)
    console.print(query_table(result))


def views_of(facts: Facts) -> list[AnswerView]:
    """In the order of the sample file, which goes from the plain case to the strange ones; other answers last."""
    ungrounded: dict[tuple[str, str], list[str]] = {}
    for point in facts.ungrounded:
        ungrounded.setdefault((point.tenant, point.answer_id), []).append(point.key_point)
    place: Mapping[tuple[str, str], int] = sample_order()
    return [
        AnswerView(
            tenant=answer.tenant,
            answer_id=answer.answer_id,
            query=answer.query or "",
            status=answer.status,
            utility_units=answer.utility_units,
            sources=[SourceLine(line.source_id, line.owner_id, line.share_units) for line in answer.sources],
            ungrounded=ungrounded.get((answer.tenant, answer.answer_id), []),
            reward=None if answer.reward_amount is None else money(answer.reward_amount, answer.reward_currency),
        )
        for answer in sorted(facts.answers, key=lambda answer: place.get((answer.tenant, answer.answer_id), len(place)))
    ]


def owners_table(facts: Facts) -> Table:
    """Credit per owner: 1.000 is one answer wholly supported by that owner alone."""
    total_units = sum(owner.credit_units for owner in facts.owners) or 1
    table = Table(title="[bold]Who earned what, over all answers[/]", title_justify="left", box=None, pad_edge=False)
    table.add_column("owner", width=OWNER_WIDTH + 4, no_wrap=True, overflow="ellipsis")
    table.add_column("part of all credit", width=BAR_WIDTH)
    for heading in ("credit", "answers"):
        table.add_column(heading, justify="right", no_wrap=True)
    for owner in facts.owners:
        name = plain(owner.owner_id) if owner.owner_id else "[dim](sources without an owner)[/]"
        part = Bar(owner.credit_units * UNIT_SCALE // total_units)
        table.add_row(name, part, decimal_of(owner.credit_units), str(owner.answers))
    return table


def facts_table(result: FirstRun) -> Table:
    summary, spend = result.summary, result.facts.spend
    cost = f"{spend.calls} LLM calls, {spend.tokens} tokens, {money(spend.cost_usd, 'USD')}"
    unpriced = f", {spend.unpriced_answers} answers unpriced" if spend.unpriced_answers else ""
    rate = f"{summary.records / summary.busy_s:,.0f} events/s: " if summary.busy_s else ""
    speed = f"{rate}{summary.records} events in {summary.busy_s:.2f} s, first one started to last one durable"
    ungrounded = len(result.facts.ungrounded)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("Settled", outcomes_told(summary.outcomes))
    table.add_row("Ungrounded", f"{ungrounded} key points that no source supports enough, named above")
    table.add_row("Cost", cost + unpriced)
    table.add_row("Speed", speed)
    return table


def query_table(result: FirstRun) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 1))
    columns = zip(*result.sql.rows, strict=True) if result.sql.rows else [()] * len(result.sql.columns)
    for name, values in zip(result.sql.columns, columns, strict=True):
        numeric = any(isinstance(value, int | Decimal) for value in values)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True, overflow="ellipsis")
    for row in result.sql.rows:
        table.add_row(*("" if value is None else plain(str(value)) for value in row))
    return table
