"""A model's message as JSON, whole or not at all.

It is read as it stands; only a message that is nothing but one code fence is unwrapped, and only after reading it as it
stands has failed: its strings may hold fences (archipelago#132). No object is ever picked out of a message that holds
more (opik#8195: an injected verdict came first).
"""

import json
import re
from enum import StrEnum
from typing import Any, NoReturn

REPLY_CHARACTERS_MAX = 1_000_000
"""More than any model's output holds; a longer reply is not read."""

_FENCED = re.compile(r"\s*```[a-zA-Z]*[ \t]*\r?\n(.*)\n[ \t]*```\s*", re.DOTALL)


class Flaw(StrEnum):
    """Why a whole reply cannot be used."""

    EMPTY = "empty"
    TOO_LONG = "too_long"
    TRUNCATED = "truncated"
    NOT_JSON = "not_json"
    NOT_THE_SCHEMA = "not_the_schema"
    UNKNOWN_ID = "unknown_id"
    TOO_MANY_KEY_POINTS = "too_many_key_points"


class NumberText(str):
    """A JSON number as it was written: exact, and never to be confused with a string or a bool."""

    __slots__ = ()


def list_in_reply(text: str | None, name: str) -> list[Any] | Flaw:
    """The list under this name in the one object that the message is; its numbers are `NumberText`.

    Fields that were not asked for are passed over, as everywhere on the wire.
    """
    if text is None or not text.strip():
        return Flaw.EMPTY
    if len(text) > REPLY_CHARACTERS_MAX:
        return Flaw.TOO_LONG
    message = _parsed(text)
    if message is None and (fenced := _FENCED.fullmatch(text)):
        message = _parsed(fenced[1])
    if message is None:
        return Flaw.NOT_JSON
    items = message.get(name) if isinstance(message, dict) else None
    return items if isinstance(items, list) else Flaw.NOT_THE_SCHEMA


def _parsed(text: str) -> object:
    """The value, or None for what is not JSON; a bare null is no reply either."""
    try:
        return json.loads(
            text,
            parse_float=NumberText,
            parse_int=NumberText,
            parse_constant=_refuse_constant,
            object_pairs_hook=_object_of,
        )
    # A ValueError is also what _object_of and _refuse_constant raise; depth bombs end in a RecursionError.
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _object_of(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object, unless a name occurs twice: two values leave open which was meant."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name occurs twice")
    return members
