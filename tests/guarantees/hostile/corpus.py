"""The hostile records as values: what is sent, and where it must end. README.md beside it says how to add one."""

import base64
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from schemas.dead_letter import DeadLetterReason
from tests.unit.schemas import examples
from worker.core.model import AnswerId, AnswerKey, TenantId
from worker.core.outcome import Outcome
from worker.core.records import Headers

DIRECTORY = Path(__file__).parent
RECORDS = DIRECTORY / "records"
_TABLE = json.loads((DIRECTORY / "cases.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Case:
    """One record and its one end; `detail` is a part of what the dead letter says, `answer_key` who was settled."""

    name: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    outcome: Outcome
    answer_key: AnswerKey | None = None
    reason: DeadLetterReason | None = None
    detail: str = ""
    timestamp_ms: int | None = None
    """The record's own; now where there is none."""
    after: str | None = None
    """The case that must be settled before this one is sent."""

    @property
    def size_bytes(self) -> int:
        header_bytes = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + header_bytes


@cache
def hostile_cases() -> tuple[Case, ...]:
    """Those of `cases.json`, in its order."""
    return tuple(_case(entry, position) for position, entry in enumerate(_TABLE["cases"]))


def golden_cases() -> tuple[Case, ...]:
    """Every golden example of `schemas/examples`."""
    valid, invalid = map(_valid_example, examples.VALID), map(_invalid_example, examples.INVALID)
    return (*valid, *invalid)


def neighbours(count: int) -> Iterator[Case]:
    """Ordinary events to stand between the hostile ones."""
    for number in range(count):
        answer_id = f"neighbour-{number}"
        event = json.loads((RECORDS / "plain.json").read_text(encoding="utf-8")) | {"answer_id": answer_id}
        key = AnswerKey(TenantId("default"), AnswerId(answer_id))
        yield Case(answer_id, answer_id.encode(), json.dumps(event).encode(), (), Outcome.ATTRIBUTED, key)


def _case(entry: dict[str, Any], position: int) -> Case:
    file = entry["file"]
    name = file.partition(".")[0] if file else f"tombstone-{position}"
    outcome = Outcome(entry["outcome"])
    is_settled = outcome not in {Outcome.DEAD_LETTER, Outcome.SKIPPED}
    tenant, answer_id = entry.get("id", ("default", name))
    return Case(
        name=name,
        key=_bytes(entry.get("key", name)),
        value=_value(RECORDS / file) if file else None,
        headers=tuple(_headers(entry.get("headers", []))),
        outcome=outcome,
        answer_key=AnswerKey(TenantId(tenant), AnswerId(answer_id)) if is_settled else None,
        reason=DeadLetterReason(entry["reason"]) if "reason" in entry else None,
        detail=entry.get("detail", ""),
        timestamp_ms=entry.get("timestamp_ms"),
        after=entry.get("after"),
    )


def _value(path: Path) -> bytes:
    if not path.name.endswith(".recipe.json"):
        return path.read_bytes()
    return b"".join(_bytes(part) or b"" for part in json.loads(path.read_text(encoding="utf-8")))


def _headers(entries: list[Any]) -> Iterator[tuple[str, bytes | None]]:
    for entry in entries:
        if isinstance(entry, dict):
            name, value = entry["repeat"]
            yield from ((name.replace("#", str(number)), _bytes(value)) for number in range(entry["times"]))
        else:
            name, value = entry
            yield name, _bytes(value)


def _bytes(said: Any) -> bytes | None:
    """A text, `{"base64": …}`, or `{"repeat": …, "times": …, "between": …}` with `#` for the number; null is none."""
    match said:
        case None:
            return None
        case str():
            return said.encode()
        case {"base64": encoded}:
            return base64.b64decode(encoded)
        case {"repeat": text, "times": times}:
            repeated = (
                [text.replace("#", str(n)) for n in range(times)] if "#" in text else itertools.repeat(text, times)
            )
            return str(said.get("between", "")).join(repeated).encode()
    raise ValueError(f"no way to say bytes: {said}")


def _valid_example(example: examples.Example) -> Case:
    event = example.event()
    key = AnswerKey(TenantId(event.get("tenant", "default")), AnswerId(event["answer_id"]))
    outcome = Outcome(example.expected["outcome"])
    return Case(example.file, example.file.encode(), example.value, example.headers, outcome, key)


def _invalid_example(example: examples.Example) -> Case:
    dead_letter = (Outcome.DEAD_LETTER, None, example.reason, example.expected["field"])
    return Case(example.file, example.file.encode(), example.value, example.headers, *dead_letter)
