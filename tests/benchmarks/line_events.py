"""Answer events by number, and the judgement that a judge of no cost gives each of them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from worker.core.model import Judgement, KeyPoint, Quote

SEED = 20_260_101
KEY_POINTS = 8
OWNERS = 6
BODIES = 64
"""Different events; a run repeats them under ever new answer ids."""
ANSWER_ID = "the-answer-id"
VOCABULARY = 4_000
ACCENTED = 0.08
"""Of the words: text that is not all ASCII takes parsers another, slower way, and most text in the world is not."""
RUBRIC = (0, 0, 3_000, 7_000, 10_000)

Event = Callable[[int], bytes]
"""The event of each number: the same bytes in every process."""


@dataclass(frozen=True, slots=True)
class EventShape:
    """How large an answer event is."""

    sources: int
    source_characters: int
    answer_characters: int

    def events(self) -> Event:
        text = _texts(Random(SEED))
        bodies = [self._body(text).split(ANSWER_ID.encode()) for _ in range(BODIES)]
        return lambda number: answer_id_of(number).encode().join(bodies[number % BODIES])

    def judgement(self) -> Judgement:
        """Eight key points, each supported by a part of the sources, with a quote for every support."""
        rng = Random(SEED)
        supports = tuple(tuple(rng.choice(RUBRIC) for _ in range(self.sources)) for _ in range(KEY_POINTS))
        quotes = {
            (row_index, source_index): Quote(
                f"source {source_index} says in these words what key point {row_index} says"
            )
            for row_index, row in enumerate(supports)
            for source_index, support in enumerate(row)
            if support
        }
        key_points = tuple(
            KeyPoint(f"The answer states fact number {index}, in a sentence.") for index in range(KEY_POINTS)
        )
        return Judgement(key_points, supports, quotes, grounding_threshold=3_000)

    def _body(self, text: Callable[[int], str]) -> bytes:
        event = {
            "schema_version": 1,
            "tenant": "bench",
            "answer_id": ANSWER_ID,
            "occurred_at": "2026-06-01T12:00:00Z",
            "query": text(80),
            "answer": text(self.answer_characters),
            "sources": [_source(index, text(self.source_characters)) for index in range(self.sources)],
            "search_llm": {"model": "search-model", "tokens": 1_234},
            "labels": {"region": "eu", "surface": "web"},
        }
        return json.dumps(event, ensure_ascii=False).encode()


FULL_SIZE = EventShape(sources=10, source_characters=830, answer_characters=900)
"""About 11 KB."""
SMALL = EventShape(sources=2, source_characters=150, answer_characters=150)
"""About 1 KB, for runs of very many."""


def answer_id_of(number: int) -> str:
    return f"a-{number:08d}"


def _texts(rng: Random) -> Callable[[int], str]:
    words = [_word(rng) for _ in range(VOCABULARY)]

    def text(characters: int) -> str:
        # A word is never shorter than two letters and a space.
        return " ".join(rng.choices(words, k=characters // 3))[:characters].strip() + "."

    return text


def _word(rng: Random) -> str:
    word = "".join(rng.choices("abcdefghijklmnoprstuvw", k=rng.randint(2, 9)))
    return f"{word}é" if rng.random() < ACCENTED else word


def _source(index: int, text: str) -> dict[str, object]:
    owner = f"publisher-{index % OWNERS}"
    return {
        "source_id": f"source-{index}",
        "owner_id": owner,
        "url": f"https://{owner}.example/articles/{index}",
        "title": f"An article, number {index}",
        "text": text,
    }
