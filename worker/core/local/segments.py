"""Where the sentences and clauses of a text begin and end, in any script, as half-open spans of characters."""

import re
from collections.abc import Iterator

SENTENCE_CHARS_MAX = 600
"""A longer run without an end is cut at its last space, so that no quote and no step of work is longer."""

Span = tuple[int, int]

_SPACED_STOPS = ".!?…"
_END = re.compile(
    rf"(?P<stops>[{_SPACED_STOPS}。！？｡؟۔।॥։።။\r\n\u2028\u2029]++)[\"'”’»)\]*_」』）】]*+(?:\[\^?\d{{1,3}}\])*+"
)
_CLAUSE_END = re.compile(r"[;:,؛،](?=\s)|[；：，、](?=\S)|\s[–—-]{1,3}(?=\s)|—(?=\S)")
_WORD_BEFORE = re.compile(r"([^\W_]+)$")
WORD_BEFORE_CHARS_MAX = 12
FOLLOWING_CHARS_MAX = 8
_TITLES = "mr mrs ms dr prof rev gen col capt lt sgt sen gov hon st mt jr sr mme mlle sra srta vs cf ca approx bzw vgl"
_COUNTED = "no nos nr vol fig eq p pp art ch sec jan feb mar apr jun jul aug sept sep oct nov dec"
_BEFORE_A_NAME = frozenset(_TITLES.split())
_BEFORE_A_NUMBER = frozenset(_COUNTED.split())


def sentence_spans(text: str) -> Iterator[Span]:
    """Sentences without the space around them, in order; every character that is not space is in exactly one."""
    start = 0
    for end in _sentence_ends(text):
        yield from _bounded(text, start, end)
        start = end


def clause_spans(text: str, sentence: Span) -> Iterator[Span]:
    """The parts of a sentence between commas, semicolons, colons and dashes, in any script; each with its mark."""
    start, last = sentence
    for mark in _CLAUSE_END.finditer(text, start, last):
        yield from _trimmed(text, start, mark.end())
        start = mark.end()
    yield from _trimmed(text, start, last)


def _sentence_ends(text: str) -> Iterator[int]:
    start = 0
    for mark in _END.finditer(text):
        if mark["stops"].strip(_SPACED_STOPS) or _ends_a_sentence(text, start, mark):
            yield mark.end()
            start = mark.end()
    yield len(text)


def _ends_a_sentence(text: str, start: int, mark: re.Match[str]) -> bool:
    """Whether Western stops are an end: space follows, and a single dot is no abbreviation, initial or list number."""
    following = text[mark.end() : mark.end() + FOLLOWING_CHARS_MAX]
    if following and not following[0].isspace():
        return False
    return mark["stops"] != "." or _is_full_stop(text, start, mark.start(), following.lstrip()[:1])


def _is_full_stop(text: str, start: int, dot: int, following: str) -> bool:
    before = _WORD_BEFORE.search(text, max(start, dot - WORD_BEFORE_CHARS_MAX), dot)
    if following.islower() or before is None:
        return not following.islower()
    word = before[1]
    if word.isdecimal():
        return bool(text[start : before.start()].strip())
    is_initial = len(word) == 1 and word.isupper()
    abbreviated = _BEFORE_A_NUMBER if following.isdecimal() else _BEFORE_A_NAME
    return not is_initial and word.lower() not in abbreviated


def _bounded(text: str, start: int, end: int) -> Iterator[Span]:
    while end - start > SENTENCE_CHARS_MAX:
        cut = _last_space(text, start, start + SENTENCE_CHARS_MAX)
        yield from _trimmed(text, start, cut)
        start = cut
    yield from _trimmed(text, start, end)


def _last_space(text: str, start: int, end: int) -> int:
    for cut in range(end, start, -1):
        if text[cut - 1].isspace():
            return cut
    return end


def _trimmed(text: str, start: int, end: int) -> Iterator[Span]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    if start < end:
        yield start, end
