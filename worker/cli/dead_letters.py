"""`attribution-worker dead-letters`: what was set aside, looked at, replayed or discarded."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, assert_never

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from schemas.dead_letter import DeadLetterReason
from worker import app
from worker.adapters.postgres.dead_letter_desk import DeadLetterFilter, Resolution
from worker.adapters.postgres.tables.queues import DeadLetterState
from worker.cli.dead_letter_lines import letter_lines, letters_as_json, letters_table, record_as_json
from worker.cli.terminal import console, error_console
from worker.cli.verify import TIME_FORMATS
from worker.settings import load_settings

dead_letters = typer.Typer(
    help="""Records that could not be attributed: list, show, replay or discard them.

Each is a row of the table `dead_letters` with its original bytes, and a record on the dead-letter topic. A row never
leaves the table: it is open until it is replayed or discarded, and then says when and why.""",
    no_args_is_help=True,
)


class StateChoice(StrEnum):
    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"
    ANY = "any"


class LetterFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


Ids = Annotated[list[int] | None, typer.Argument(help="Identities as `list` shows them.", metavar="ID")]
Reason = Annotated[DeadLetterReason | None, typer.Option("--with-reason", help="Set aside for this reason.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Of this tenant.")]
AnswerOf = Annotated[str | None, typer.Option("--answer-id", help="Of this answer, where its id could be read.")]
Topic = Annotated[str | None, typer.Option("--topic", help="Read from this topic.")]
Partition = Annotated[int | None, typer.Option("--partition", min=0, help="Read from this partition.")]
Offset = Annotated[int | None, typer.Option("--offset", min=0, help="Read at this offset.")]
Since = Annotated[
    datetime | None,
    typer.Option("--since", formats=TIME_FORMATS, metavar="TIME", help="Set aside at or after this time, UTC."),
]
Until = Annotated[
    datetime | None, typer.Option("--until", formats=TIME_FORMATS, metavar="TIME", help="Set aside before this time.")
]
All = Annotated[bool, typer.Option("--all", help="Every open one, where neither ids nor a filter say which.")]
Format = Annotated[LetterFormat, typer.Option("--format", help="table, or json: one document, bytes in base64.")]


@dead_letters.command("list")
def list_letters(
    reason: Reason = None,
    tenant: Tenant = None,
    answer_id: AnswerOf = None,
    topic: Topic = None,
    partition: Partition = None,
    offset: Offset = None,
    since: Since = None,
    until: Until = None,
    state: Annotated[StateChoice, typer.Option("--state", help="open, replayed, discarded or any.")] = StateChoice.OPEN,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="The newest so many.")] = 50,
    output: Format = LetterFormat.TABLE,
) -> None:
    """Show the newest dead letters, without their bytes.

    Example: `attribution-worker dead-letters list --with-reason judge_incomplete --since 2026-01-31`
    """
    wanted = _filter((), reason, tenant, answer_id, topic, partition, offset, since, until, _state(state))
    found, total = asyncio.run(_find(wanted, limit))
    match output:
        case LetterFormat.JSON:
            console.out(letters_as_json(found), highlight=False)
        case LetterFormat.TABLE:
            console.print(letters_table(found) if found else "No dead letter is like that.")
            if total > len(found):
                console.print(f"The newest {len(found)} of {total}: `--limit` shows more.")
        case _:
            assert_never(output)


@dead_letters.command("show")
def show(
    dead_letter_id: Annotated[int, typer.Argument(help="Identity as `list` shows it.", metavar="ID")],
    output: Format = LetterFormat.TABLE,
) -> None:
    """Show one dead letter with its record: key, headers and value as they were received."""

    async def read() -> None:
        async with app.open_dead_letter_desk(load_settings()) as desk:
            found = await desk.read(dead_letter_id)
        if found is None:
            error_console.print(f"There is no dead letter {dead_letter_id}.")
            raise typer.Exit(1)
        match output:
            case LetterFormat.JSON:
                console.out(record_as_json(*found), highlight=False)
            case LetterFormat.TABLE:
                for line in letter_lines(*found):
                    console.print(line, soft_wrap=True)
            case _:
                assert_never(output)

    asyncio.run(read())


@dead_letters.command("replay")
def replay(
    ids: Ids = None,
    reason: Reason = None,
    tenant: Tenant = None,
    answer_id: AnswerOf = None,
    topic: Topic = None,
    partition: Partition = None,
    offset: Offset = None,
    since: Since = None,
    until: Until = None,
    all_open: All = False,
    note: Annotated[str | None, typer.Option("--note", help="What was mended; kept with each.")] = None,
    per_second: Annotated[int, typer.Option("--per-second", min=1, max=10_000, help="At most so many a second.")] = 20,
) -> None:
    """Put open dead letters back on the answers topic: original bytes, key and headers, and one that counts replays.

    A replayed record is a new record with a budget of attempts of its own; it ends in an outcome as any other, perhaps
    as a new dead letter. State and message are stored in one transaction and published from there: interrupted, run it
    again, and nothing is replayed twice or lost. It writes to the answers topic, which a worker's own role need not.

    What was too large to keep whole cannot be replayed, and stays open. A `judge_refused` record is refused again
    unless another model or prompt judges now. Mend the cause first: what fails again counts for the dead-letter limits.

    Example: `attribution-worker dead-letters replay --with-reason budget_exhausted --note "budget raised"`
    """
    wanted = _filter(ids, reason, tenant, answer_id, topic, partition, offset, since, until, None)
    _require_choice(wanted, all_open=all_open)
    ended = asyncio.run(_replay(wanted, note, per_second))
    for line in replay_lines(ended):
        console.print(line)
    missing = len(set(wanted.ids)) - sum(map(len, ended.values())) if wanted.ids else 0
    if missing:
        console.print(f"{missing} of the ids given are not open, or not like the filter.")
    if any(end is not Resolution.REPLAYED for end in ended):
        raise typer.Exit(1)


@dead_letters.command("discard")
def discard(
    why: Annotated[str, typer.Option("--reason", help="Why nothing will come of them; kept with each.")],
    ids: Ids = None,
    reason: Reason = None,
    tenant: Tenant = None,
    answer_id: AnswerOf = None,
    topic: Topic = None,
    partition: Partition = None,
    offset: Offset = None,
    since: Since = None,
    until: Until = None,
    all_open: All = False,
) -> None:
    """Close open dead letters for good, and say why. Their rows and bytes stay in the table.

    Example: `attribution-worker dead-letters discard 17 18 --reason "test traffic"`
    """
    if not why.strip():
        raise typer.BadParameter("say why", param_hint="--reason")
    wanted = _filter(ids, reason, tenant, answer_id, topic, partition, offset, since, until, None)
    _require_choice(wanted, all_open=all_open)

    async def close() -> int:
        async with app.open_dead_letter_desk(load_settings()) as desk:
            return await desk.discard(wanted, note=why)

    console.print(f"{asyncio.run(close())} discarded.")


def replay_lines(ended: Mapping[Resolution, Sequence[int]]) -> Iterator[str]:
    """What became of each; nothing at all is a line too."""
    if not ended:
        yield "No open dead letter is like that: nothing replayed."
    for resolution in Resolution:
        ids = ended.get(resolution, ())
        if not ids:
            continue
        named = ", ".join(map(str, ids[:10])) + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")
        match resolution:
            case Resolution.REPLAYED:
                yield f"{len(ids)} replayed."
            case Resolution.NOT_OPEN:
                yield f"{len(ids)} were replayed or discarded by somebody else meanwhile: {named}"
            case Resolution.TRUNCATED:
                yield (
                    f"{len(ids)} cannot be replayed: {named}. Only their beginning was kept "
                    "(dead_letters.copy_bytes_max). Have the producer send them again, then discard them."
                )
            case Resolution.REPLAYED_TOO_OFTEN:
                yield f"{len(ids)} were replayed too often already: {named}"
            case _:
                assert_never(resolution)


async def _find(wanted: DeadLetterFilter, limit: int) -> tuple[Sequence[app.StoredDeadLetter], int]:
    async with app.open_dead_letter_desk(load_settings()) as desk:
        return await desk.find(wanted, rows_max=limit), await desk.count(wanted)


async def _replay(wanted: DeadLetterFilter, note: str | None, per_second: int) -> Mapping[Resolution, Sequence[int]]:
    settings = load_settings()
    async with app.open_dead_letter_desk(settings) as desk:
        ids = await desk.open_ids(wanted)
    with _progress(len(ids)) as progress:
        task = progress.add_task("replay", total=len(ids))
        return await app.replay_dead_letters(
            settings, ids, note=note, per_second=per_second, progressed=lambda count: progress.advance(task, count)
        )


@contextmanager
def _progress(total: int) -> Iterator[Progress]:
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = not (total and error_console.is_terminal)
    with Progress(*columns, console=error_console, transient=True, disable=hidden) as progress:
        yield progress


def _filter(
    ids: Sequence[int] | None,
    reason: DeadLetterReason | None,
    tenant: str | None,
    answer_id: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    since: datetime | None,
    until: datetime | None,
    state: DeadLetterState | None,
) -> DeadLetterFilter:
    return DeadLetterFilter(
        ids=tuple(ids or ()),
        reason=reason,
        tenant=tenant,
        answer_id=answer_id,
        topic=topic,
        partition=partition,
        offset=offset,
        since=_utc(since),
        until=_utc(until),
        state=state,
    )


def _require_choice(wanted: DeadLetterFilter, *, all_open: bool) -> None:
    """Nothing said must not mean everything."""
    if all_open == (wanted != DeadLetterFilter()):
        raise typer.BadParameter("say which: ids, filters, or --all alone", param_hint="ID")


def _state(choice: StateChoice) -> DeadLetterState | None:
    return None if choice is StateChoice.ANY else DeadLetterState(choice.value)


def _utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
