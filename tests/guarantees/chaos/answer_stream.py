"""The records of a campaign, from a seed: mostly answers, and some of everything else that a topic may hold."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.support import samples
from tests.support.llm import harbour_answer
from worker.core.model import Answer, AnswerId

WEIGHTS = {
    "answer": 78,
    "sent_again": 5,
    "same_content": 3,
    "other_content": 3,
    "tombstone": 2,
    "garbage": 3,
    "unsupported": 2,
    "no_sources": 2,
    "empty_answer": 2,
}


@dataclass(frozen=True)
class ToSend:
    partition: int
    value: bytes | None


class AnswerStream:
    """`count` records over the partitions; the same for the same seed."""

    def __init__(self, seed: int, *, count: int, partitions: int) -> None:
        self._random = random.Random(seed)
        self._count = count
        self._partitions = partitions
        self._sent: list[Answer] = []

    def __iter__(self) -> Iterator[ToSend]:
        kinds, weights = zip(*WEIGHTS.items(), strict=True)
        for number in range(self._count):
            (kind,) = self._random.choices(kinds, weights) if self._sent else ("answer",)
            yield ToSend(self._random.randrange(self._partitions), self._value(kind, number))

    def _value(self, kind: str, number: int) -> bytes | None:
        match kind:
            case "tombstone":
                return None
            case "garbage":
                return b'{"answer_id": "cut in the middle of a wor'
            case "unsupported":
                return json.dumps({"schema_version": 2, "answer_id": f"a-{number}"}).encode()
        return json.dumps(samples.event_of(self._answer(kind, number))).encode()

    def _answer(self, kind: str, number: int) -> Answer:
        earlier = self._random.choice(self._sent) if self._sent else None
        new = harbour_answer(f"a-{number}", sentences=self._random.randint(1, 4), sources=self._random.randint(1, 4))
        new = replace(new, query=f"{new.query} ({number})")
        if earlier is not None and kind == "sent_again":
            return earlier
        if earlier is not None and kind == "same_content":
            new = replace(earlier, key=replace(earlier.key, answer_id=AnswerId(f"a-{number}")))
        elif earlier is not None and kind == "other_content":
            new = replace(new, key=earlier.key)
        elif kind == "no_sources":
            new = replace(new, sources=())
        elif kind == "empty_answer":
            new = replace(new, text="")
        self._sent.append(new)
        return new
