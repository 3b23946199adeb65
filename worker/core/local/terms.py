"""Which terms of a text carry its content: words, or character n-grams where a script writes no spaces."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

from worker.core.local.stopwords import STOPWORD_LISTS

CACHED_WORD_CHARS_MAX = 24
CACHED_WORDS_MAX = 16_384
PLURAL_CHARS_MIN = 4

# Python's \w leaves out combining marks, without which Indic and South-East Asian words fall apart.
_LAST_MARK = 0x1FFFF


def _marks() -> str:
    """A regular expression's character class of all combining marks and the two joiners words are written with."""
    points = (point for point in range(0x300, _LAST_MARK) if unicodedata.category(chr(point)).startswith("M"))
    ranges: list[list[int]] = []
    for point in points:
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return "\u00ad\u200c\u200d" + "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


MARKS = _marks()
_IN_WORD = rf"[\w{MARKS}]"
_WORD = re.compile(rf"\w{_IN_WORD}*(?:['’ʼ&.,٫٬]\w{_IN_WORD}*)*")
_ACRONYM = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")
_NUMBER = re.compile(r"\d+(?:[.,٫٬]\d+)*")
_POINT = re.compile("[.,٫٬]")
_APOSTROPHE = re.compile("['’ʼ]")
_ARABIC_POINTS = str.maketrans("٫٬", ".,")
_THOUSANDS = re.compile(r",(?=\d{3}(?!\d))")
_NOT_ASCII_DIGIT = re.compile(r"(?![0-9])\d")
# Accents, vowel points, the Arabic tatweel, variation selectors and invisible formatting: how, not what, is written.
_ORNAMENT = re.compile(
    "[\u00ad\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20d0-\u20ff\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]"
)
_KANA = "\u3040-\u30ff\u31f0-\u31ff"
_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_BIGRAM_SCRIPTS = f"{_KANA}{_HAN}\u1100-\u11ff\uac00-\ud7ff"
_TRIGRAM_SCRIPTS = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\uaa60-\uaa7f"
_RUN = re.compile(
    f"(?P<bigrams>[{_BIGRAM_SCRIPTS}]+)|(?P<trigrams>[{_TRIGRAM_SCRIPTS}]+)|[^{_BIGRAM_SCRIPTS}{_TRIGRAM_SCRIPTS}]+"
)
# Particles and endings of Japanese are written in hiragana, most of its content words are not.
_HIRAGANA_ONLY = re.compile("[\u3041-\u309f]+")


def terms_of(text: str) -> Iterator[str]:
    """The terms of a text in order, repeated as often as they occur; never an empty one."""
    for word in _WORD.findall(text):
        yield from _cached_terms(word) if len(word) <= CACHED_WORD_CHARS_MAX else _terms_of_word(word)


def content_terms(text: str) -> frozenset[str]:
    """The distinct terms that carry content; empty for a text of stop words, digits-free symbols or nothing.

    Depends on the text alone: its stop words are those of the list it has most words on.
    """
    terms = frozenset(terms_of(text))
    remaining = terms - max(_stop_terms(), key=lambda stop_terms: len(terms & stop_terms))
    return frozenset(term for term in remaining if not _HIRAGANA_ONLY.fullmatch(term)) or remaining


@lru_cache(maxsize=1)
def _stop_terms() -> tuple[frozenset[str], ...]:
    return tuple(frozenset(term for word in words for term in terms_of(word)) for words in STOPWORD_LISTS)


def _terms_of_word(word: str) -> tuple[str, ...]:
    """U.S. and US are one term, AT&T, 3.5 and 40,000 too; any other dot or comma stands between two words."""
    if word.isalpha() and word.isascii():
        return (_singular(word.lower()),)
    if _ACRONYM.fullmatch(word):
        parts = [word.replace(".", "")]
    elif _NUMBER.fullmatch(word):
        parts = [_THOUSANDS.sub("", word.translate(_ARABIC_POINTS))]
    else:
        parts = _POINT.split(word)
    return tuple(term for part in parts for term in _terms_of_part(part) if term)


_cached_terms = lru_cache(maxsize=CACHED_WORDS_MAX)(_terms_of_word)


def _terms_of_part(part: str) -> Iterator[str]:
    folded = _without_affixes(part.lower() if part.isascii() else _folded(part)).strip("_")
    for run in _RUN.finditer(folded):
        match run.lastgroup:
            case "bigrams":
                yield from _n_grams(run[0], 2)
            case "trigrams":
                yield from _n_grams(run[0], 3)
            case _:
                yield _singular(run[0])


def _n_grams(run: str, size: int) -> Iterable[str]:
    return (run[start : start + size] for start in range(max(1, len(run) - size + 1)))


def _folded(word: str) -> str:
    plain = _ORNAMENT.sub("", unicodedata.normalize("NFKD", word).casefold())
    digits = _NOT_ASCII_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), plain)
    return unicodedata.normalize("NFC", digits)


def _without_affixes(word: str) -> str:
    parts = _APOSTROPHE.split(word)
    if len(parts) > 1 and len(parts[-1]) <= 2:
        parts.pop()
    if len(parts) > 1 and len(parts[0]) <= 2:
        parts.pop(0)
    return "".join(parts)


def _singular(word: str) -> str:
    if len(word) < PLURAL_CHARS_MIN or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return word[:-1]
