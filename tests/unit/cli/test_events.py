"""What a file of answer events may look like, and what is said of one that is none."""

import codecs
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.cli import events
from worker.cli.events import BadLine, EventFiles, EventLine, read_events

ONE = b'{"answer_id": "1"}'
TWO = b'{"answer_id": "2"}'
PRETTY = json.dumps({"answer_id": "1", "sources": []}, indent=2).encode()


def read(content: bytes) -> list[EventLine | BadLine]:
    return list(read_events("file", io.BytesIO(content)))


def values(content: bytes) -> dict[str, bytes | None]:
    items = read(content)
    assert all(isinstance(item, EventLine) for item in items), items
    return {item.place: item.record.value for item in items if isinstance(item, EventLine)}


def problem(content: bytes) -> str:
    [item] = read(content)
    assert isinstance(item, BadLine)
    return f"{item.place}: {item.problem}"


def test_each_line_is_an_event_with_its_number() -> None:
    assert values(ONE + b"\n" + TWO) == {"file:1": ONE, "file:2": TWO}


def test_blank_lines_are_passed_over_and_counted() -> None:
    assert values(b"\n  \n" + ONE + b"\n\n" + TWO + b"\n\n") == {"file:3": ONE, "file:5": TWO}


def test_windows_line_ends_and_a_byte_order_mark_change_nothing() -> None:
    assert values(codecs.BOM_UTF8 + ONE + b"\r\n" + TWO + b"\r\n") == {"file:1": ONE, "file:2": TWO}


@pytest.mark.parametrize("content", [b"", b"\n\n", b" \r\n", codecs.BOM_UTF8])
def test_an_empty_file_holds_no_events(content: bytes) -> None:
    assert read(content) == []


def test_a_pretty_printed_document_is_one_event() -> None:
    [(place, value)] = values(b"\n" + PRETTY + b"\n").items()
    assert place == "file:2"
    assert json.loads(value or b"") == json.loads(PRETTY)


def test_a_broken_document_is_told_once_by_the_line_it_breaks_at() -> None:
    assert problem(PRETTY.replace(b'"sources": []', b'"sources": [')).startswith("file:4: not JSON: ")


def test_a_truncated_first_line_costs_no_other_line() -> None:
    items = read(b'{"answer_id":\n' + ONE + b"\n" + TWO)
    assert [item.place for item in items] == ["file:1", "file:2", "file:3"]
    assert all(isinstance(item, EventLine) for item in items), "what is wrong with line 1 is the decoder's to say"


def test_a_bad_line_in_the_middle_is_passed_on_to_the_decoder() -> None:
    assert list(values(ONE + b"\nnonsense\n" + TWO)) == ["file:1", "file:2", "file:3"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", "file:1: not UTF-8 text"),
        (b"\x1f\x8b\x08\x00 gzip", "file:1: not UTF-8 text"),
        (b"\x00\x01\x02", "file:1: zero bytes"),
        ('{"answer_id": "1"}'.encode("utf-16"), "file:1: UTF-16 text: save it as UTF-8"),
        (b"[\n" + ONE + b",\n" + TWO + b"\n]", "file:1: a JSON array; what is read is one event a line"),
    ],
)
def test_a_file_that_is_no_events_at_all_is_told_once_with_what_to_do(content: bytes, said: str) -> None:
    assert problem(content).startswith(said)


def test_a_line_without_end_is_not_read_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LINE_BYTES_MAX", 30)
    assert "a line of more than 30 bytes" in problem(b"x" * 31)
    assert list(values(b"x" * 29 + b"\n" + ONE)) == ["file:1", "file:2"]


def test_a_document_without_end_is_not_read_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "DOCUMENT_BYTES_MAX", len(PRETTY))
    assert len(read(PRETTY)) == 1
    assert "write one event a line" in problem(PRETTY + b" ")


def test_a_file_that_fails_while_it_is_read_is_named() -> None:
    class Failing(io.BytesIO):
        def readline(self, _size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    assert list(read_events("file", Failing())) == [BadLine("file", "cannot be read: Input/output error")]


def test_all_files_are_opened_before_the_first_is_read(tmp_path: Path) -> None:
    there = tmp_path / "there.jsonl"
    there.write_bytes(ONE)
    with pytest.raises(FileNotFoundError) as refused:
        EventFiles([str(there), str(tmp_path / "missing.jsonl")])
    assert refused.value.filename == str(tmp_path / "missing.jsonl")


@given(st.binary(max_size=300))
def test_whatever_the_bytes_every_line_is_an_event_or_told(content: bytes) -> None:
    for item in read(content):
        assert item.place.startswith("file")
        if isinstance(item, EventLine):
            assert item.record.value


@given(st.lists(st.sampled_from([ONE, TWO, b"", b"nonsense", b'{"a": 1,', b"[1]"]), max_size=8))
def test_no_whole_object_on_a_line_of_its_own_is_ever_lost(lines: list[bytes]) -> None:
    found = [item.record.value for item in read(b"\n".join(lines)) if isinstance(item, EventLine)]
    assert [value for value in found if value in (ONE, TWO)] == [line for line in lines if line in (ONE, TWO)]
