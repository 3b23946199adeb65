"""The golden examples as values: what a record holds and what must become of it."""

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from schemas.dead_letter import DeadLetterReason
from worker.core.records import Headers, Record

DIRECTORY = Path(__file__).parents[3] / "schemas" / "examples"
_INDEX = json.loads((DIRECTORY / "index.json").read_text(encoding="utf-8"))

NOW = datetime.fromisoformat(_INDEX["now"])


@dataclass(frozen=True)
class Example:
    file: str
    says: str
    expected: dict[str, Any]

    @property
    def value(self) -> bytes:
        return (DIRECTORY / self.file).read_bytes()

    @property
    def headers(self) -> Headers:
        path = (DIRECTORY / self.file).with_suffix(".headers.json")
        if not path.exists():
            return ()
        return tuple((name, text.encode()) for name, text in json.loads(path.read_text(encoding="utf-8")).items())

    @property
    def record(self) -> Record:
        return Record("answers", 3, 41, 1_780_000_000_000, b"key", self.value, self.headers)

    @property
    def reason(self) -> DeadLetterReason:
        return DeadLetterReason(self.expected["reason"])

    def event(self) -> Any:
        """The answer event as a plain JSON value, out of its envelope.

        Raises:
            ValueError: there is no JSON, or none that is strict.
        """
        try:
            parsed = json.loads(self.value.decode(), parse_constant=_refuse)
        except RecursionError as error:
            raise ValueError("too deep") from error
        if not isinstance(parsed, dict) or "specversion" not in parsed:
            return parsed
        if "data_base64" in parsed and "data" not in parsed:
            return json.loads(base64.b64decode(parsed["data_base64"], validate=True))
        return parsed.get("data")


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _examples(kind: str) -> list[Example]:
    return [Example(entry.pop("file"), entry.pop("says"), entry) for entry in _INDEX[kind]]


VALID = _examples("valid")
INVALID = _examples("invalid")


def name(example: Example) -> str:
    return Path(example.file).stem
