"""An answer's key points: its clauses, joined until each makes a claim of its own."""

import re
from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise

from worker.core.local.segments import Span, clause_spans, sentence_spans
from worker.core.local.steps import returned
from worker.core.local.terms import content_terms
from worker.core.model import KeyPoint

CLAUSE_TERMS_MIN = 4
"""A clause with fewer content terms is no claim of its own and stays with its neighbour."""

_CITATION = re.compile(r"\[\^?\d{1,3}(?:\s?[,–-]\s?\d{1,3})*\]|【\d+[^】]{0,40}】")
_LIST_MARK = re.compile(r"\A(?:[-*•‣·>#]+\s+|\d{1,3}[.)]\s+)+")
_EMPHASIS = re.compile(r"\*\*|__|`")
_LOOSE_ENDS = " ,;:،؛，、；：–—-"


def key_points_of(text: str, key_points_max: int) -> tuple[KeyPoint, ...]:
    """The key points of a whole answer at once: `claiming`, then `joined_evenly`."""
    return joined_evenly(text, returned(claiming(text)), key_points_max)


def joined_evenly(text: str, claims: Sequence[Span], key_points_max: int) -> tuple[KeyPoint, ...]:
    """At most `key_points_max` key points of weight 1, in the answer's order.

    Nothing of the answer is dropped: past the maximum, neighbouring claims are joined into groups whose sizes
    differ by at most one claim.
    """
    groups = min(len(claims), key_points_max)
    cuts = [group * len(claims) // groups for group in range(groups + 1)] if groups else []
    spans = ((claims[first][0], claims[end - 1][1]) for first, end in pairwise(cuts))
    return tuple(KeyPoint(_cleaned(text[start:end]) or text[start:end]) for start, end in spans)


def claiming(text: str) -> Generator[None, None, list[Span]]:
    """Yields after each sentence; returns the spans that carry content, none if no word does.

    A sentence without any ("Yes.") belongs to the claim that follows it, at the end to the one before.
    """
    claims: list[Span] = []
    pending: int | None = None
    for sentence in sentence_spans(text):
        for (start, end), terms in _claims_of_sentence(text, sentence):
            pending = start if pending is None else pending
            if terms:
                claims.append((pending, end))
                pending = None
        yield
    if claims and pending is not None:
        claims[-1] = (claims[-1][0], len(text.rstrip()))
    return claims


def _claims_of_sentence(text: str, sentence: Span) -> Iterator[tuple[Span, int]]:
    """Clauses joined forward until each has enough content terms; a short rest joins the clause before it."""
    claims: list[tuple[Span, int]] = []
    for clause in clause_spans(text, sentence):
        terms = len(content_terms(_cleaned(text[slice(*clause)])))
        if claims and (terms < CLAUSE_TERMS_MIN or claims[-1][1] < CLAUSE_TERMS_MIN):
            (start, _), terms_before = claims.pop()
            claims.append(((start, clause[1]), terms_before + terms))
        else:
            claims.append((clause, terms))
    yield from claims


def _cleaned(text: str) -> str:
    """Without citation marks, list marks and emphasis: they point or decorate, they claim nothing."""
    plain = _EMPHASIS.sub("", _CITATION.sub("", _LIST_MARK.sub("", text)))
    return " ".join(plain.split()).strip(_LOOSE_ENDS)
