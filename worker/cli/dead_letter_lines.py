"""How dead letters look: to a person, whom their bytes must not trick, and to a program, which gets all of them."""

import base64
import json
from collections.abc import Iterator, Sequence

from rich.table import Table

from worker.adapters.postgres.dead_letter_desk import StoredDeadLetter
from worker.cli.terminal import plain
from worker.core.records import Record

SHOWN_CHARACTERS_MAX = 4_000
"""Of a value on the terminal; --format json has it whole."""


def letters_table(letters: Sequence[StoredDeadLetter]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("id", "set aside (UTC)", "reason", "state"):
        table.add_column(heading, no_wrap=True)
    table.add_column("answer, record, fault", overflow="fold")
    for letter in letters:
        table.add_row(
            str(letter.dead_letter_id),
            f"{letter.created_at:%Y-%m-%d %H:%M}",
            letter.reason.value,
            letter.state.value,
            plain(_whose(letter)),
        )
        table.add_row("", "", "", "", plain(_where(letter)))
        table.add_row("", "", "", "", f"[dim]{plain(letter.detail)}[/]")
    return table


def letters_as_json(letters: Sequence[StoredDeadLetter]) -> str:
    return json.dumps([_document(letter) for letter in letters], indent=2)


def letter_lines(letter: StoredDeadLetter, record: Record) -> Iterator[str]:
    """One dead letter with its record, as markup."""
    yield f"[bold]dead letter {letter.dead_letter_id}[/]: {letter.reason.value}, {letter.state.value}"
    yield f"detail    {plain(letter.detail)}"
    yield f"answer    {plain(_whose(letter))}"
    yield f"record    {plain(_where(letter))}, {letter.value_size_bytes} bytes, SHA-256 {letter.value_hash.hex()}"
    yield f"set aside {letter.created_at:%Y-%m-%d %H:%M:%S} after {letter.attempts} attempts, by {letter.code_version}"
    if letter.resolved_at is not None:
        yield f"{letter.state.value:9} {letter.resolved_at:%Y-%m-%d %H:%M:%S}: {plain(letter.resolution_note or '')}"
    yield f"key       {_shown(record.key)}"
    for name, value in record.headers:
        yield f"header    {plain(name)}: {_shown(value)}"
    if letter.truncated:
        yield f"only the first {len(record.value or b'')} bytes of the value were kept: it cannot be replayed"
    yield f"value     {_shown(record.value)}"


def record_as_json(letter: StoredDeadLetter, record: Record) -> str:
    document = _document(letter) | {
        "timestamp_ms": record.timestamp_ms,
        "key_base64": _base64(record.key),
        "headers": [{"name": name, "value_base64": _base64(value)} for name, value in record.headers],
        "value_base64": _base64(record.value),
    }
    return json.dumps(document, indent=2)


def _document(letter: StoredDeadLetter) -> dict[str, object]:
    return {
        "dead_letter_id": letter.dead_letter_id,
        "state": letter.state.value,
        "reason": letter.reason.value,
        "detail": letter.detail,
        "tenant": letter.tenant,
        "answer_id": letter.answer_id,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "attempts": letter.attempts,
        "code_version": letter.code_version,
        "created_at": letter.created_at.isoformat(),
        "resolved_at": letter.resolved_at.isoformat() if letter.resolved_at else None,
        "resolution_note": letter.resolution_note,
        "value_size_bytes": letter.value_size_bytes,
        "value_sha256": letter.value_hash.hex(),
        "truncated": letter.truncated,
    }


def _whose(letter: StoredDeadLetter) -> str:
    return "unknown" if letter.answer_id is None else f"{letter.tenant}/{letter.answer_id}"


def _where(letter: StoredDeadLetter) -> str:
    return f"{letter.topic}/{letter.partition}/{letter.offset}"


def _shown(value: bytes | None) -> str:
    if value is None:
        return "[dim]none[/]"
    text = value.decode(errors="replace")
    cut = f" … and {len(text) - SHOWN_CHARACTERS_MAX} characters more" if len(text) > SHOWN_CHARACTERS_MAX else ""
    return plain(text[:SHOWN_CHARACTERS_MAX]) + cut


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
