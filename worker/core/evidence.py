"""Whether a judge's quote is in its source, and where the source says it when the quote is not.

No support stands without evidence. Characters that look or mean the same are folded before comparing, nothing else:
a quote with another word is not in the source.
"""

import re
import unicodedata

from worker.core.local.support import SourceIndex, best_window
from worker.core.local.terms import MARKS, content_terms
from worker.core.model import Quote, QuoteOrigin, Source

_QUOTATION_MARK = re.compile("[\"'`´‘’‚‛“”„‟‹›«»「」『』〝〞〟′″ʼ]")
_DASH = re.compile("[‐‑‒–—―−⸺⸻﹘﹣-]")
# Soft hyphens, zero-width characters, directional marks and the byte order mark are not seen, and get lost in copying.
_INVISIBLE = re.compile("[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
# Sorting a run of marks takes quadratic time; Unicode's stream-safe text has no longer run (UAX #15).
MARKS_RUN_MAX = 30
_PILED_MARKS = re.compile(f"([{MARKS}]{{{MARKS_RUN_MAX}}})[{MARKS}]+")
_SPACE = re.compile(r"\s+")
_ELLIPSIS = re.compile(r"[\[(]?\s*(?:\.{3,}|(?:\.\s){2,}\.|⋯+)\s*[\])]?")


def folded(text: str) -> str:
    """Unicode NFKC, case, white space, quotation marks and dashes made one; invisible characters left out."""
    readable = _PILED_MARKS.sub(r"\1", _INVISIBLE.sub("", text))
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", readable).casefold())
    return _SPACE.sub(" ", _DASH.sub("-", _QUOTATION_MARK.sub("'", plain))).strip()


def folded_source(source: Source) -> str:
    """Title and text as `holds_quote` compares them; fold a source once, look for many quotes."""
    return folded(f"{source.title or ''}\n{source.text}")


def holds_quote(quote: str, folded_text: str) -> bool:
    """Whether the quote's fragments, which an ellipsis separates, are in the text, in order and apart.

    Quotation marks around the quote do not count. A quote without a letter or digit is no evidence.
    """
    fragments = [fragment.strip(" '") for fragment in _ELLIPSIS.split(folded(quote))]
    position = 0
    for fragment in filter(None, fragments):
        found = folded_text.find(fragment, position)
        if found < 0:
            return False
        position = found + len(fragment)
    return any(character.isalnum() for fragment in fragments for character in fragment)


def located_quote(key_point: str, index: SourceIndex) -> Quote | None:
    """The source's best window as evidence, if it holds at least half of the key point's content terms."""
    terms = content_terms(key_point)
    window = best_window(terms, index)
    if window is None or 2 * window.terms < len(terms):
        return None
    return Quote(window.text, QuoteOrigin.LOCATED)
