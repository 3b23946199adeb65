"""`attribution-worker demo`: the whole path on sample answers, in one command."""

import signal
from typing import Annotated

import typer
import uvloop
from rich.markup import escape
from rich.table import Table

from worker.app import Facts
from worker.cli.render import (
    BAR_WIDTH,
    OWNER_WIDTH,
    AnswerView,
    SourceLine,
    answer_panel,
    console,
    decimal_of,
    share_bar,
)
from worker.core.model import UNIT_SCALE
from worker.demo.first_run import FirstRun, first_run
from worker.demo.services import BrokerName, services
from worker.settings import Settings, load_settings
from worker.telemetry import configure_logging

LOOK_FURTHER = "SELECT owner_id, answers, credit, shares FROM owner_credit_daily ORDER BY credit DESC"


def demo(
    broker: Annotated[
        BrokerName,
        typer.Option("--broker", help="embedded: in seconds; apache: a real Apache Kafka (needs Java and Maven)."),
    ] = BrokerName.EMBEDDED,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the services up afterwards, until Ctrl-C.")] = False,
) -> None:
    """Attribute a dozen sample answers end to end: Kafka in, exact credit in PostgreSQL, in one command.

    Starts an embedded broker and an embedded PostgreSQL on 127.0.0.1, or uses those that
    ATTRIBUTION_KAFKA__BOOTSTRAP_SERVERS and ATTRIBUTION_POSTGRES__DSN name; then runs the very worker that `run` runs,
    with the local judge, until every answer is settled. Nothing is left behind. The local judge counts words: good for
    a first look, never for paying anyone.
    """
    signal.signal(signal.SIGTERM, _interrupted)
    settings = load_settings()
    configure_logging(settings.log.model_copy(update={"level": "warning"}))
    try:
        with services(settings, broker, say) as running:
            result = uvloop.run(first_run(running, say))
            show(result)
            show_where_to_look(running, keep=keep)
            if keep:
                console.print("\nThe services stay up. Ctrl-C ends them.")
                signal.pause()
    except KeyboardInterrupt:
        console.print("\nStopped; nothing is left behind.")
        raise typer.Exit(0 if keep else 130) from None


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def say(text: str) -> None:
    console.print(f"[dim]{escape(text)}[/]")


def show(result: FirstRun) -> None:
    facts = result.facts
    console.print()
    for view in views_of(facts):
        console.print(answer_panel(view))
        console.print()
    console.print(owners_table(facts))
    console.print()
    spend = facts.spend
    cost = f"{spend.calls} LLM calls, {spend.tokens} tokens, {spend.cost_usd.normalize():f} USD"
    unpriced = f", {spend.unpriced_answers} answers unpriced" if spend.unpriced_answers else ""
    console.print(f"[bold]Cost[/]     {cost}{unpriced}")
    summary = result.summary
    outcomes = ", ".join(f"{count} {outcome.value}" for outcome, count in sorted(summary.outcomes.items()))
    rate = f"{summary.records / summary.busy_s:,.0f} events/s" if summary.busy_s else "–"
    console.print(f"[bold]Settled[/]  {outcomes}")
    console.print(f"[bold]Speed[/]    {rate} over {summary.records} events [dim](first record to last row durable)[/]")


def views_of(facts: Facts) -> list[AnswerView]:
    ungrounded: dict[tuple[str, str], list[str]] = {}
    for point in facts.ungrounded:
        ungrounded.setdefault((point.tenant, point.answer_id), []).append(point.key_point)
    return [
        AnswerView(
            tenant=answer.tenant,
            answer_id=answer.answer_id,
            query=answer.query or "",
            status=answer.status,
            utility_units=answer.utility_units,
            sources=[SourceLine(line.source_id, line.owner_id, line.share_units) for line in answer.sources],
            ungrounded=ungrounded.get((answer.tenant, answer.answer_id), []),
            reward=None
            if answer.reward_amount is None
            else f"{answer.reward_amount.normalize():f} {answer.reward_currency}",
        )
        for answer in facts.answers
    ]


def owners_table(facts: Facts) -> Table:
    """Credit per owner: 1.000 is one answer wholly supported by that owner alone."""
    total_units = sum(owner.credit_units for owner in facts.owners) or 1
    table = Table(title="[bold]Who earned what, over all answers[/]", title_justify="left", box=None, pad_edge=False)
    table.add_column("owner", width=OWNER_WIDTH + 4, no_wrap=True)
    table.add_column("part of all credit", width=BAR_WIDTH)
    for heading in ("credit", "answers"):
        table.add_column(heading, justify="right", no_wrap=True)
    for owner in facts.owners:
        name = escape(owner.owner_id) if owner.owner_id else "[dim](sources without an owner)[/]"
        part_units = owner.credit_units * UNIT_SCALE // total_units
        table.add_row(name, share_bar(part_units), decimal_of(owner.credit_units), str(owner.answers))
    return table


def show_where_to_look(settings: Settings, *, keep: bool) -> None:
    dsn = settings.postgres.dsn.get_secret_value()
    console.print()
    if keep or "dsn" in load_settings().postgres.model_fields_set:
        console.print("[bold]Look further[/]")
        console.print(f'  psql "{dsn}" -c "{LOOK_FURTHER}"', soft_wrap=True, markup=False)
        console.print(f"  ATTRIBUTION_POSTGRES__DSN={dsn} attribution-worker verify", soft_wrap=True, markup=False)
    else:
        console.print(
            "[bold]Look further[/]  make demo DEMO_OPTIONS=--keep leaves the services up, and prints a line for:"
        )
        console.print(f'  psql … -c "{LOOK_FURTHER}"', soft_wrap=True, markup=False)
