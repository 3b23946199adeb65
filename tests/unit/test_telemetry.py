"""What the worker says of its records: one line each, facts and never a word of the payload."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from schemas.dead_letter import DeadLetterReason
from tests.support import samples
from tests.support.attributions import attribution_of
from worker.core.outcome import Outcome, Processed
from worker.errors import PermanentError, UnavailableError
from worker.settings import LogFormat, LogSettings
from worker.telemetry import Telemetry, configure_logging, telemetry, traceback_without_payload

PAYLOAD = "the publisher's very words"
ANSWER = samples.answer(text=PAYLOAD)
RECORD = samples.record_of(ANSWER, offset=7, partition=3)
Lines = Callable[..., "Log"]


class Log:
    """A telemetry whose lines can be read back."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.telemetry = Telemetry()
        self._capsys = capsys

    def text(self) -> str:
        printed = self._capsys.readouterr()
        assert printed.out == "", "standard output is for results"
        return printed.err

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines()]


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """`log(format=…, level=…)` sets logging up anew, for this test alone."""
    root = logging.getLogger()
    before, handlers, level_before = structlog.get_config(), list(root.handlers), root.level

    def configured(*, output: LogFormat = LogFormat.JSON, level: str = "info") -> Log:
        configure_logging(LogSettings(format=output, level=level))
        # A logger keeps the configuration that it met first.
        monkeypatch.setattr(telemetry, "log", structlog.get_logger("worker"))
        return Log(capsys)

    yield configured
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level_before)


def settled(outcome: Outcome = Outcome.ATTRIBUTED) -> Processed:
    return Processed(outcome, ANSWER.key, attribution_of(ANSWER))


def test_a_settled_record_is_one_line_with_all_that_is_known_of_it(log: Lines) -> None:
    here = log()
    here.telemetry.record_settled(RECORD, settled(), attempts=2, duration_s=0.0123456)
    [line] = here.lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "record.settled",
        "level": "info",
        "outcome": "attributed",
        "duration_ms": 12.346,
        "attempts": 2,
        "topic": "answers",
        "partition": 3,
        "offset": 7,
        "tenant": "default",
        "answer_id": "a-1",
        "sources": 3,
        "key_points": 1,
        "utility_units": 10**12,
        "reused": False,
        "calls": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        "cost_usd": "0",
    }


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_is_one_line_and_counted(log: Lines, outcome: Outcome) -> None:
    here = log()
    key = None if outcome is Outcome.SKIPPED else ANSWER.key
    here.telemetry.record_settled(RECORD, Processed(outcome, key), attempts=1, duration_s=0.1)
    [line] = here.lines()
    assert (line["outcome"], "answer_id" in line) == (outcome.value, key is not None)
    assert here.telemetry.outcomes == {outcome: 1}


def test_on_a_terminal_a_line_is_for_people(log: Lines) -> None:
    here = log(output=LogFormat.CONSOLE)
    here.telemetry.record_settled(RECORD, settled(), attempts=1, duration_s=0.01)
    text = here.text()
    assert text.count("\n") == 1
    assert "record.settled" in text
    assert not text.startswith("{")
    assert "\x1b" not in text, "asked for, but on no terminal: no colours"


def test_where_nobody_watches_auto_is_json(log: Lines) -> None:
    here = log(output=LogFormat.AUTO)
    here.telemetry.outage_waited("PostgreSQL: refused", 1)
    assert [line["event"] for line in here.lines()] == ["outage.waited"]


@pytest.mark.parametrize(("level", "shown"), [("debug", 2), ("info", 2), ("warning", 1), ("error", 0)])
def test_the_level_chooses_what_is_said_and_not_what_is_counted(log: Lines, level: str, shown: int) -> None:
    here = log(level=level)
    here.telemetry.record_settled(RECORD, settled(), attempts=1, duration_s=0.01)
    here.telemetry.attempt_failed(RECORD, 1, "no verdict", 0.5)
    assert len(here.lines()) == shown
    assert here.telemetry.outcomes == {Outcome.ATTRIBUTED: 1}


def test_each_trouble_names_the_record_and_what_was_wrong(log: Lines) -> None:
    here = log()
    here.telemetry.attempt_failed(RECORD, 2, "no verdict", 0.5)
    here.telemetry.dead_letter_stored(RECORD, DeadLetterReason.INVALID_EVENT, "occurred_at: Field required")
    here.telemetry.outage_waited("PostgreSQL: refused", 4)
    attempt, dead_letter, outage = here.lines()
    position = {"topic": "answers", "partition": 3, "offset": 7}
    assert attempt.items() >= {"event": "attempt.failed", "level": "warning", "attempt": 2, **position}.items()
    assert dead_letter.items() >= {"event": "dead_letter.stored", "reason": "invalid_event", **position}.items()
    assert outage.items() >= {"event": "outage.waited", "problem": "PostgreSQL: refused", "tries": 4}.items()


def test_an_event_name_is_a_noun_and_what_happened_to_it(log: Lines) -> None:
    here = log()
    here.telemetry.record_settled(RECORD, settled(), attempts=1, duration_s=0.01)
    here.telemetry.attempt_failed(RECORD, 2, "no verdict", 0.5)
    here.telemetry.outage_waited("down", 4)
    assert all(line["event"].count(".") == 1 and line["event"].islower() for line in here.lines())


def test_no_word_of_the_payload_is_in_any_line(log: Lines) -> None:
    for output in (LogFormat.JSON, LogFormat.CONSOLE):
        here = log(output=output, level="debug")
        here.telemetry.record_settled(RECORD, settled(), attempts=1, duration_s=0.01)
        here.telemetry.attempt_failed(RECORD, 1, "no verdict", 0.5)
        here.telemetry.dead_letter_stored(RECORD, DeadLetterReason.JUDGE_INCOMPLETE, "no verdict")
        text = here.text()
        words = [PAYLOAD, ANSWER.query, *(source.text for source in ANSWER.sources)]
        assert [word for word in words if word in text] == []


def failing(payload: str) -> None:
    """The ways in which a bug quotes what it was working on."""
    parsed = {"answer": payload}
    try:
        int(parsed["answer"])
    except ValueError as error:
        raise KeyError(payload) from error


def caught(payload: str = PAYLOAD) -> BaseException:
    try:
        failing(payload)
    except KeyError as error:
        return error
    raise AssertionError("it fails")


@pytest.mark.parametrize("output", [LogFormat.JSON, LogFormat.CONSOLE])
def test_the_traceback_of_a_bug_says_where_and_what_kind_and_quotes_nothing(log: Lines, output: LogFormat) -> None:
    here = log(output=output)
    structlog.get_logger("worker").error("consume.failed", exc_info=caught())
    text = here.text()
    assert PAYLOAD not in text
    assert "in failing" in text
    assert text.index("ValueError") < text.index("which led to") < text.index("KeyError")


def test_a_library_that_logs_a_traceback_quotes_nothing_either(log: Lines) -> None:
    here = log()
    try:
        failing(PAYLOAD)
    except KeyError:
        logging.getLogger("asyncio").exception("Task exception was never retrieved")
    [line] = here.lines()
    assert line["event"] == "Task exception was never retrieved"
    assert "KeyError" in line["exception"]
    assert PAYLOAD not in line["exception"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (UnavailableError("PostgreSQL: refused"), "worker.errors.UnavailableError: PostgreSQL: refused"),
        (PermanentError(DeadLetterReason.NOT_JSON, "line 1"), "worker.errors.PermanentError: not_json: line 1"),
        (ConnectionRefusedError(111, "Connection refused"), "ConnectionRefusedError: [Errno 111] Connection refused"),
        (TypeError("f() takes no arguments"), "TypeError: f() takes no arguments"),
        (ValueError(PAYLOAD), "ValueError"),
        (UnicodeEncodeError("utf-8", PAYLOAD, 0, 1, PAYLOAD), "UnicodeEncodeError"),
        (json.JSONDecodeError("bad", PAYLOAD, 3), "json.decoder.JSONDecodeError"),
    ],
)
def test_what_cannot_quote_a_payload_is_told_in_full(error: Exception, told: str) -> None:
    assert traceback_without_payload(error).splitlines()[-1] == told


def test_a_group_of_errors_tells_each_of_them() -> None:
    group = ExceptionGroup(PAYLOAD, [ValueError(PAYLOAD), ExceptionGroup("", [UnavailableError("down")])])
    text = traceback_without_payload(group)
    assert PAYLOAD not in text
    assert "| ValueError" in text
    assert "| | worker.errors.UnavailableError: down" in text


def test_an_error_raised_from_none_does_not_tell_what_was_before() -> None:
    error = caught()
    error.__cause__, error.__suppress_context__ = None, True
    assert "which led to" not in traceback_without_payload(error)
