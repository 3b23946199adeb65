"""The two streams a person reads, and text from strangers made fit for them."""

import io
import sys
import unicodedata

from rich.console import Console
from rich.markup import escape

console = Console(highlight=False)
error_console = Console(stderr=True, highlight=False)

REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that make later text run the other way: with them a name can be shown as another."""


def accept_every_encoding() -> None:
    """A character that the terminal's encoding lacks is shown as `?` instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def plain(text: str) -> str:
    """Text of an event as markup that shows it and does nothing else: no styles, no control of the terminal."""
    return escape("".join(map(_harmless, text)))


def _harmless(character: str) -> str:
    if character in "\t\n\r\u2028\u2029":
        return " "
    return "\ufffd" if unicodedata.category(character) in {"Cc", "Cs"} or character in REORDERING else character
