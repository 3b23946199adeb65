"""Text that PostgreSQL accepts: it stores neither NUL nor lone surrogates, in text or in JSONB."""

import re
from collections.abc import Mapping, Sequence

from pydantic_core import PydanticSerializationError, to_json

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
ESCAPED_NUL = "\\u0000"


def scrubbed(text: str) -> str:
    return UNSTORABLE.sub(REPLACEMENT, text)


def scrubbed_json(value: object) -> object:
    """The same JSON value with every string in it, keys too, scrubbed."""
    match value:
        case str():
            return scrubbed(value)
        case Mapping():
            return {scrubbed(str(name)): scrubbed_json(member) for name, member in value.items()}
        case Sequence():
            return [scrubbed_json(member) for member in value]
        case _:
            return value


def jsonb(value: object) -> str:
    """JSON text for a JSONB column. Strings are scrubbed before encoding: in encoded text NUL is no longer NUL.

    Scrubbing walks the whole value, so that it waits for a sign that it is needed.
    """
    try:
        encoded = to_json(value).decode()
    except PydanticSerializationError:
        encoded = ESCAPED_NUL
    return to_json(scrubbed_json(value)).decode() if ESCAPED_NUL in encoded else encoded
