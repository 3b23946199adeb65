"""JSON text → wire model, refusing what the parser lets pass: repeated names, NaN, and NUL that no database stores."""

import json
import re
from typing import Final, NoReturn, TypeVar

from pydantic import BaseModel

from worker.codec.problems import KNOWN_FIELDS, invalid_event

_Model = TypeVar("_Model", bound=BaseModel)

_NUL_ESCAPE: Final = rb"\u0000"
# An even number of backslashes before it: else the text merely speaks of the escape.
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
_REPLACEMENT_ESCAPE: Final = rb"\1\\ufffd"


def validate(model: type[_Model], json_text: bytes) -> tuple[_Model, int]:
    """The model, and how many NUL characters became U+FFFD in its texts.

    Identifiers refuse NUL, and a text of nothing but NUL is blank: both are judged before anything is replaced.

    Raises:
        ValidationError: not JSON, or not valid.
        PermanentError: valid but ambiguous.
    """
    parsed = model.model_validate_json(json_text)
    _require_unambiguous(json_text)
    if _NUL_ESCAPE not in json_text:
        return parsed, 0
    scrubbed, scrubbed_count = _NUL.subn(_REPLACEMENT_ESCAPE, json_text)
    return model.model_validate_json(scrubbed), scrubbed_count


def _require_unambiguous(json_text: bytes) -> None:
    """Only for text that pydantic has parsed: it bounds the depth and has checked UTF-8 and surrogates."""
    _DECODER.decode(json_text.decode())


def _require_distinct_names(members: list[tuple[str, object]]) -> None:
    if len(dict(members)) == len(members):
        return
    seen: set[str] = set()
    for name, _ in members:
        if name in seen:
            # Readers differ in which of the two they believe; with money in it, neither is.
            raise invalid_event(name if name in KNOWN_FIELDS else "an unknown field", "is given twice in one object")
        seen.add(name)


def _refuse_constant(_: str) -> NoReturn:
    raise invalid_event("a number", "is NaN or infinite, which JSON does not know")


def _nothing(_: str) -> None:
    """Numbers were judged by pydantic; converting them again could only cost time."""


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_require_distinct_names,
    parse_constant=_refuse_constant,
    parse_int=_nothing,
    parse_float=_nothing,
)
