"""How much of a key point a source states, by its words, and the passage of the source that shows it."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from worker.core.local.segments import SENTENCE_CHARS_MAX, Span, sentence_spans
from worker.core.local.steps import returned
from worker.core.local.terms import terms_of
from worker.core.model import SUPPORT_SCALE, Source


@dataclass(frozen=True, slots=True)
class SourceIndex:
    """One source, read once: which sentences of title and text hold each term.

    `sentences` are (field, span) with field 0 the title and 1 the text.
    """

    fields: tuple[str, str]
    sentences: list[tuple[int, Span]] = field(default_factory=list)
    sentences_by_term: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Window:
    """One sentence, or two neighbours, word for word, and how many of the key point's content terms it holds."""

    text: str
    terms: int


def indexing(source: Source) -> Generator[None, None, SourceIndex]:
    """Yields after each sentence read; returns the index."""
    index = SourceIndex((source.title or "", source.text))
    for number, text in enumerate(index.fields):
        for start, end in sentence_spans(text):
            sentence = len(index.sentences)
            index.sentences.append((number, (start, end)))
            for term in set(terms_of(text[start:end])):
                index.sentences_by_term.setdefault(term, []).append(sentence)
            yield
    return index


def index_of(source: Source) -> SourceIndex:
    """The index of a source at once."""
    return returned(indexing(source))


def support_of(terms: frozenset[str], index: SourceIndex) -> int:
    """Recall of the content terms in title and text, in units of 10⁻⁴, rounded half to even."""
    return ratio_in_units(len(index.sentences_by_term.keys() & terms), len(terms))


def ratio_in_units(part: int, whole: int) -> int:
    """Their ratio in units of 10⁻⁴, rounded half to even; 0 of nothing is 0."""
    if whole == 0:
        return 0
    quotient, remainder = divmod(part * SUPPORT_SCALE, whole)
    doubled = 2 * remainder
    return quotient + (doubled > whole or (doubled == whole and quotient % 2 == 1))


def best_window(terms: frozenset[str], index: SourceIndex) -> Window | None:
    """The window that holds most of the terms, the shortest of several, the first of equals; None if none holds any."""
    held: dict[int, int] = {}
    for bit, term in enumerate(terms):
        for sentence in index.sentences_by_term.get(term, ()):
            held[sentence] = held.get(sentence, 0) | 1 << bit
    ranked = [
        (-bits.bit_count(), end - start, first, (number, (start, end)))
        for first, bits, (number, (start, end)) in _windows(held, index)
    ]
    if not ranked:
        return None
    missing, _, _, (number, (start, end)) = min(ranked)
    return Window(index.fields[number][start:end], -missing)


def _windows(held: dict[int, int], index: SourceIndex) -> Iterator[tuple[int, int, tuple[int, Span]]]:
    for first, bits in held.items():
        number, (start, end) = index.sentences[first]
        yield first, bits, (number, (start, end))
        bits_after = held.get(first + 1)
        if bits_after is None:
            continue
        number_after, (_, end_after) = index.sentences[first + 1]
        if number_after == number and end_after - start <= SENTENCE_CHARS_MAX:
            yield first, bits | bits_after, (number, (start, end_after))
