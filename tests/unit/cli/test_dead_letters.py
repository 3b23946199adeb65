import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console
from typer.testing import CliRunner

from schemas.dead_letter import DeadLetterReason
from tests.support import samples
from worker.adapters.postgres.dead_letter_desk import Resolution, StoredDeadLetter
from worker.adapters.postgres.tables.queues import DeadLetterState
from worker.app.dead_letters import Replaying
from worker.cli.dead_letter_lines import letter_lines, letters_as_json, letters_table, record_as_json
from worker.cli.dead_letters import dead_letters, replay_lines
from worker.core.records import OutboundMessage
from worker.errors import UnavailableError
from worker.ports import OutboxRow

LETTER = StoredDeadLetter(
    dead_letter_id=17,
    topic="answers",
    partition=3,
    offset=42,
    reason=DeadLetterReason.NOT_JSON,
    detail="value: not JSON",
    attempts=1,
    tenant=None,
    answer_id=None,
    value_hash=bytes(32),
    value_size_bytes=5,
    truncated=False,
    code_version="1.0",
    created_at=datetime(2026, 1, 31, 12, tzinfo=UTC),
    state=DeadLetterState.OPEN,
    resolved_at=None,
    resolution_note=None,
)


@pytest.mark.parametrize("arguments", [["replay"], ["discard", "--reason", "why"], ["replay", "17", "--all"]])
def test_nothing_said_does_not_mean_everything(arguments: Sequence[str]) -> None:
    result = CliRunner().invoke(dead_letters, [*arguments])
    assert result.exit_code == 2
    assert "say which" in result.output


@pytest.mark.parametrize("arguments", [["discard", "17"], ["discard", "17", "--reason", " "]])
def test_a_discard_says_why(arguments: Sequence[str]) -> None:
    result = CliRunner().invoke(dead_letters, [*arguments])
    assert result.exit_code == 2
    assert "--reason" in result.output


def test_bytes_of_strangers_are_shown_and_do_nothing() -> None:
    record = replace(samples.record(b"[bold]\x1b[31mred"), headers=(("h\u202e", b"\xff"),))
    text = shown(letter_lines(LETTER, record))
    assert "[bold]\ufffd[31mred" in text
    assert "h\ufffd: \ufffd" in text


def test_json_has_every_byte() -> None:
    record = replace(samples.record(b"\x00\xff"), headers=(("[b]", b"\xfe"), ("[b]", b"")))
    document = json.loads(record_as_json(LETTER, record))
    assert base64.b64decode(document["value_base64"]) == b"\x00\xff"
    assert document["headers"] == [{"name": "[b]", "value_base64": "/g=="}, {"name": "[b]", "value_base64": ""}]
    assert record_as_json(LETTER, samples.record(None)).count("null") > letters_as_json([LETTER]).count("null")


def test_a_list_says_what_where_and_why() -> None:
    text = shown([letters_table([LETTER])])
    for part in ("17", "2026-01-31 12:00", "not_json", "unknown", "answers/3/42", "open", "value: not JSON"):
        assert part in text


def test_what_cannot_be_replayed_is_named_and_told_what_to_do() -> None:
    [replayed, truncated] = replay_lines({Resolution.TRUNCATED: range(12), Resolution.REPLAYED: [99]})
    assert replayed == "1 replayed."
    assert truncated.startswith("12 cannot be replayed: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more.")


def shown(renderables: object) -> str:
    console = Console(width=200, highlight=False)
    with console.capture() as captured:
        for renderable in renderables:  # type: ignore[attr-defined]  # lines or tables
            console.print(renderable, soft_wrap=True)
    return captured.get()


class FakeOutbox:
    """Rows appear as letters are replayed, and go when a claim ends well."""

    def __init__(self) -> None:
        self.rows: list[OutboxRow] = []

    def put(self, number: int) -> None:
        self.rows.append(OutboxRow(number, OutboundMessage("answers", None, str(number).encode())))

    @asynccontextmanager
    async def claim(self, rows_max: int) -> AsyncIterator[Sequence[OutboxRow]]:
        claimed = self.rows[:rows_max]
        yield claimed
        del self.rows[: len(claimed)]

    async def pending(self) -> int:
        return len(self.rows)


class FakePublisher:
    def __init__(self, *, failures: int = 0) -> None:
        self.published: list[bytes | None] = []
        self.failures = failures

    async def publish(self, messages: Sequence[OutboundMessage]) -> None:
        if self.failures:
            self.failures -= 1
            raise UnavailableError("no broker")
        self.published += [message.value for message in messages]


class Bench:
    """A replay with a clock that only sleeping moves."""

    def __init__(self, *, failures: int = 0) -> None:
        self.outbox = FakeOutbox()
        self.publisher = FakePublisher(failures=failures)
        self.now_s = 0.0
        self.progress: list[tuple[float, int]] = []

    async def run(self, ids: Sequence[int], per_second: int) -> None:
        async def replay(number: int) -> Resolution:
            self.outbox.put(number)
            self.now_s += 0.01
            return Resolution.REPLAYED

        async def sleep(seconds: float) -> None:
            self.now_s += seconds

        replaying = Replaying(
            replay=replay,
            outbox=self.outbox,
            publisher=self.publisher,
            batch_max=2,
            sleep=sleep,
            monotonic=lambda: self.now_s,
        )
        await replaying.run(
            ids, per_second=per_second, progressed=lambda count: self.progress.append((self.now_s, count))
        )


async def test_a_replay_is_no_faster_than_asked_for() -> None:
    bench = Bench()
    await bench.run(range(25), per_second=10)
    assert [(round(at_s, 2), count) for at_s, count in bench.progress] == [(0.1, 10), (1.1, 10), (2.05, 5)]
    assert bench.publisher.published == [str(number).encode() for number in range(25)]


async def test_what_an_interrupted_replay_stored_goes_out_with_the_next_one() -> None:
    bench = Bench(failures=1)
    bench.outbox.put(1)
    with pytest.raises(UnavailableError):
        await bench.run([], per_second=10)
    await bench.run([2], per_second=10)
    assert bench.publisher.published == [b"1", b"2"]
