"""Answer events from files and stdin, each with its place, as the records Kafka would have delivered."""

import codecs
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO

from worker.core.records import Record

STDIN = "-"
LINE_BYTES_MAX = 16 * 2**20
DOCUMENT_BYTES_MAX = 64 * 2**20
"""One pretty-printed document; lines are read one at a time, however many there are."""
WHAT_IS_READ = "what is read is one event a line, or one event as a document"


@dataclass(frozen=True, slots=True)
class EventLine:
    """One event and where a person finds it."""

    place: str
    record: Record


@dataclass(frozen=True, slots=True)
class BadLine:
    """A place that holds no event, and what to do about it."""

    place: str
    problem: str


class EventFiles:
    """Files, all of them opened before the first event is read."""

    def __init__(self, names: Sequence[str]) -> None:
        """Raises OSError, with the name, for the first that cannot be opened."""
        with ExitStack() as stack:
            self._streams = [(_shown(name), self._open(stack, name)) for name in names]
            self._stack = stack.pop_all()

    def __iter__(self) -> Iterator[EventLine | BadLine]:
        with self._stack:
            for name, stream in self._streams:
                yield from read_events(name, stream)

    @staticmethod
    def _open(stack: ExitStack, name: str) -> BinaryIO:
        return sys.stdin.buffer if name == STDIN else stack.enter_context(Path(name).open("rb"))


def read_events(name: str, stream: BinaryIO) -> Iterator[EventLine | BadLine]:
    """One event a line, blank lines passed over; or one pretty-printed document."""
    for index, item in enumerate(_lines(name, stream)):
        if isinstance(item, BadLine):
            yield item
            return
        number, line = item
        if index == 0:
            problem = _why_no_text(line)
            if problem is not None:
                yield BadLine(f"{name}:{number}", problem)
                return
            if _is_unfinished(line):
                rest = stream.read(DOCUMENT_BYTES_MAX + 1)
                yield from _document_or_lines(name, number, line + b"\n" + rest)
                return
        yield _event(name, number, line)


def _lines(name: str, stream: BinaryIO) -> Iterator[tuple[int, bytes] | BadLine]:
    """Lines that are not blank, numbered; without line ends and without a byte order mark."""
    for number in count(1):
        try:
            line = stream.readline(LINE_BYTES_MAX + 1)
        except OSError as error:
            yield BadLine(name, f"cannot be read: {error.strerror}")
            return
        if not line:
            return
        if len(line) > LINE_BYTES_MAX:
            yield BadLine(f"{name}:{number}", f"a line of more than {LINE_BYTES_MAX} bytes; nothing after it was read")
            return
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.strip():
            yield number, line.rstrip(b"\r\n")


def _document_or_lines(name: str, first_number: int, content: bytes) -> Iterator[EventLine | BadLine]:
    """What begins with an unfinished line: one document, or lines of which the first is broken."""
    place = f"{name}:{first_number}"
    if len(content) > DOCUMENT_BYTES_MAX:
        yield BadLine(place, f"one document of more than {DOCUMENT_BYTES_MAX} bytes: write one event a line")
        return
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        lines = list(enumerate(content.splitlines(), start=first_number))
        if any(_is_object(line) for _, line in lines[1:]):
            yield from (_event(name, number, line) for number, line in lines if line.strip())
        elif isinstance(error, json.JSONDecodeError):
            yield BadLine(f"{name}:{first_number + error.lineno - 1}", f"not JSON: {error.msg}; {WHAT_IS_READ}")
        else:
            yield BadLine(place, f"not JSON; {WHAT_IS_READ}")
        return
    if isinstance(document, list):
        yield BadLine(place, f"a JSON array; {WHAT_IS_READ} (jq -c '.[]' makes lines of an array)")
    else:
        yield _event(name, first_number, content)


def _why_no_text(line: bytes) -> str | None:
    """For a file's first line: what makes the file none of JSON, said once and not for each of its lines."""
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16 text: save it as UTF-8"
    try:
        line.decode()
    except UnicodeDecodeError:
        return "not UTF-8 text: unpack or convert the file first; nothing of it was read"
    return "zero bytes: this is no text file; nothing of it was read" if b"\0" in line else None


def _is_unfinished(line: bytes) -> bool:
    """Whether this is the beginning of a document that goes on in the next line."""
    text = line.decode().strip()
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos >= len(text)
    except (ValueError, RecursionError):
        return False
    return False


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _event(name: str, line_number: int, value: bytes) -> EventLine:
    record = Record(topic=name, partition=0, offset=line_number - 1, timestamp_ms=0, key=None, value=value)
    return EventLine(f"{name}:{line_number}", record)


def _shown(name: str) -> str:
    return "<stdin>" if name == STDIN else name
