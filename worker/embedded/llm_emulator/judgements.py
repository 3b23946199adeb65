"""What the emulated model thinks: the local judge's numbers, in the form that the worker's requests ask for."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from worker.core.llm import Stage
from worker.core.local.key_points import key_points_of
from worker.core.local.support import SourceIndex, best_window, index_of, support_of
from worker.core.local.terms import content_terms, terms_of
from worker.core.model import KeyPoint, Source, SourceId
from worker.core.model_side import (
    Asked,
    ShownSource,
    StatedCell,
    dropped_reply,
    key_points_reply,
    read_request,
    scores_reply,
)
from worker.core.prompts import Weighting

KEY_POINTS_MAX = 64
QUOTE_WORDS_MAX = 12
"""Fewer than the instructions allow: models quote briefly."""


@dataclass(frozen=True, slots=True)
class Understood:
    """One of the worker's requests, read back."""

    stage: Stage
    asked: Asked
    weighting: Weighting


Opinion = Callable[[Understood], str]
"""The text that the model answers with."""


def understood(message: str, schema: str) -> Understood | None:
    """What the worker asks; None for anybody else's message. `schema` is the reply's, or the words that give it."""
    try:
        asked = read_request(message)
    except (ValueError, TypeError, KeyError):
        return None
    weighting = Weighting.IMPORTANCE if '"importance"' in schema else Weighting.UNIFORM
    if asked.sources:
        return Understood(Stage.SCORE, asked, weighting)
    return Understood(Stage.REFINE if asked.key_points else Stage.DECOMPOSE, asked, weighting)


def local_opinion(request: Understood) -> str:
    """The supports are exactly the local judge's; its quotes are shortened to what a model would quote."""
    asked = request.asked
    match request.stage:
        case Stage.DECOMPOSE:
            return key_points_reply(key_points_of(asked.answer, KEY_POINTS_MAX), request.weighting)
        case Stage.REFINE:
            return dropped_reply(())
        case Stage.SCORE:
            sources = {source.source_id: source for source in asked.sources}
            return scores_reply(
                StatedCell(key_point_id, source_id, *_local_score(asked.key_points[key_point_id], sources[source_id]))
                for key_point_id, source_id in asked.pairs
            )
        case _:
            assert_never(request.stage)


def instant_opinion(request: Understood) -> str:
    """Costs next to nothing: the answer is one key point, and every other source states all of it."""
    asked = request.asked
    match request.stage:
        case Stage.DECOMPOSE:
            return key_points_reply([KeyPoint(" ".join(asked.answer.split())[:200] or "nothing")], request.weighting)
        case Stage.REFINE:
            return dropped_reply(())
        case Stage.SCORE:
            first_words = {
                source.source_id: " ".join(source.text.split()[:QUOTE_WORDS_MAX]) for source in asked.sources
            }
            return scores_reply(
                StatedCell(key_point_id, source_id, 10_000 * (int(source_id[1:]) % 2), first_words[source_id])
                for key_point_id, source_id in asked.pairs
            )
        case _:
            assert_never(request.stage)


def _local_score(key_point: str, source: ShownSource) -> tuple[int, str]:
    terms = _terms(key_point)
    index = _index(source.title, source.text)
    window = best_window(terms, index)
    return support_of(terms, index), "" if window is None else shortened(window.text, terms)


def shortened(text: str, terms: frozenset[str]) -> str:
    """At most `QUOTE_WORDS_MAX` words of it, from the first that holds one of the terms on."""
    words = text.split()
    first = next((at for at, word in enumerate(words) if not terms.isdisjoint(_terms_of_word(word))), 0)
    first = max(0, min(first, len(words) - QUOTE_WORDS_MAX))
    return " ".join(words[first : first + QUOTE_WORDS_MAX])


@lru_cache(maxsize=100_000)
def _terms_of_word(word: str) -> tuple[str, ...]:
    return tuple(terms_of(word))


# One source is scored for many key points, and in `pair` mode each time by a request of its own.
@lru_cache(maxsize=512)
def _index(title: str | None, text: str) -> SourceIndex:
    return index_of(Source(SourceId(""), text, title=title))


@lru_cache(maxsize=512)
def _terms(key_point: str) -> frozenset[str]:
    return content_terms(key_point)
