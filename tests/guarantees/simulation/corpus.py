"""The records of one schedule, and what may become of each."""

import json
import random
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from schemas.dead_letter import DeadLetterReason
from tests.support import samples
from tests.support.judging import TEXTS, opinion
from worker.core.model import Answer, AnswerId, AnswerKey, OwnerId, Source, SourceId, Status, TenantId
from worker.core.model_side import ShownSource

FORBIDDEN = "forbidden"
"""A model refuses to judge an answer that says so."""

CURSED = "cursed"
"""Most calls for an answer that says so fail, or are answered with nonsense, whoever makes them."""

UNRELATED = "The moon is round."
TENANTS = ("default", "modest")
SOURCES_MAX = 3


class Kind(Enum):
    FRESH = auto()
    COPY = auto()  # an earlier record again
    CONFLICT = auto()  # an earlier answer's key with other content
    TWIN = auto()  # an earlier answer's content under its own key
    REFUSED = auto()
    CURSED = auto()
    UNGROUNDED = auto()
    EMPTY = auto()
    NO_SOURCES = auto()
    TOMBSTONE = auto()
    GARBAGE = auto()
    INVALID = auto()
    TOO_LARGE = auto()


WEIGHTS = {
    Kind.FRESH: 50,
    Kind.COPY: 12,
    Kind.CONFLICT: 8,
    Kind.TWIN: 6,
    Kind.REFUSED: 5,
    Kind.CURSED: 6,
    Kind.UNGROUNDED: 4,
    Kind.EMPTY: 3,
    Kind.NO_SOURCES: 3,
    Kind.TOMBSTONE: 5,
    Kind.GARBAGE: 4,
    Kind.INVALID: 3,
    Kind.TOO_LARGE: 1,
}
EVENT_BYTES_MAX = 4_096


@dataclass(frozen=True)
class Produced:
    """A record to come: where, when, and after how many missing offsets, as compaction leaves them."""

    kind: Kind
    value: bytes | None
    answer: Answer | None
    partition: int
    at_s: float
    hole: int

    @property
    def status(self) -> Status | None:
        """How its answer is settled if it is; None for what holds no answer that can be."""
        answer = self.answer
        if answer is None or FORBIDDEN in answer.text:
            return None
        if not answer.sources:
            return Status.NO_SOURCES
        if not answer.text.strip():
            return Status.NO_KEY_POINTS
        grounded = any(source.text != UNRELATED for source in answer.sources)
        return Status.ATTRIBUTED if grounded else Status.UNGROUNDED

    @property
    def reasons(self) -> frozenset[DeadLetterReason]:
        """Why it may be set aside whatever the weather; a valid answer always, if its key has other content."""
        match self.kind:
            case Kind.GARBAGE:
                return frozenset({DeadLetterReason.NOT_JSON})
            case Kind.INVALID:
                return frozenset({DeadLetterReason.INVALID_EVENT})
            case Kind.TOO_LARGE:
                return frozenset({DeadLetterReason.TOO_LARGE})
            case _ if self.answer is not None and FORBIDDEN in self.answer.text:
                return frozenset({DeadLetterReason.JUDGE_REFUSED})
            case _ if self.answer is not None and CURSED in self.answer.text:
                return frozenset({DeadLetterReason.ATTEMPTS_EXHAUSTED, DeadLetterReason.JUDGE_INCOMPLETE})
            case _:
                return frozenset()


def records_of(rng: random.Random, partitions: int) -> tuple[Produced, ...]:
    """Most are there from the start, the others come while the workers run."""
    number_of_records = rng.randint(12, 32)
    made: list[Produced] = []
    for number in range(number_of_records):
        earlier = [record for record in made if record.answer is not None]
        kind = rng.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))[0]
        value, answer = _event(rng, kind, number, earlier)
        partition = rng.randrange(partitions)
        at_s = 0.0 if rng.random() < 0.6 else rng.random() * 60
        made.append(Produced(kind, value, answer, partition, at_s, hole=rng.choice((0, 0, 0, 0, 1, 3))))
    return tuple(sorted(made, key=lambda record: record.at_s))


def _event(rng: random.Random, kind: Kind, number: int, earlier: list[Produced]) -> tuple[bytes | None, Answer | None]:
    match kind:
        case Kind.TOMBSTONE:
            return None, None
        case Kind.GARBAGE:
            return rng.choice((b"", b"\xff\xfe", b"not json", b'{"answer_id":')), None
        case Kind.INVALID:
            return json.dumps({"schema_version": 1, "answer_id": f"a-{number}", "query": "?"}).encode(), None
        case Kind.TOO_LARGE:
            return b"{" + b" " * EVENT_BYTES_MAX + b"}", None
        case Kind.COPY if earlier:
            copied = rng.choice(earlier)
            return copied.value, copied.answer
        case _:
            answer = _answer(rng, kind, number, earlier)
            return json.dumps(samples.event_of(answer)).encode(), answer


def _answer(rng: random.Random, kind: Kind, number: int, earlier: list[Produced]) -> Answer:
    texts = rng.sample(TEXTS, rng.randint(1, SOURCES_MAX))
    text = f"Tea is a hot drink, and coffee comes from beans. ({number})"
    fresh = replace(
        samples.answer(),
        key=AnswerKey(TenantId(rng.choice(TENANTS)), AnswerId(f"a-{number}")),
        text=text,
        sources=_sources(texts),
    )
    others = [record.answer for record in earlier if record.answer is not None]
    match kind:
        case Kind.CONFLICT if others:
            changes: dict[str, Any] = {"key": rng.choice(others).key}
        case Kind.TWIN if others:
            twin = rng.choice(others)
            return replace(twin, key=replace(fresh.key, tenant=twin.key.tenant))
        case Kind.REFUSED | Kind.CURSED:
            changes = {"text": f"{text} This is {FORBIDDEN if kind is Kind.REFUSED else CURSED}."}
        case Kind.UNGROUNDED:
            changes = {"sources": _sources([UNRELATED])}
        case Kind.EMPTY:
            changes = {"text": " "}
        case Kind.NO_SOURCES:
            changes = {"sources": ()}
        case _:
            changes = {}
    return replace(fresh, **changes)


def _sources(texts: list[str]) -> tuple[Source, ...]:
    return tuple(
        Source(SourceId(f"doc-{index}"), text, OwnerId(f"owner-{index % 2}")) for index, text in enumerate(texts)
    )


def supports(key_point: str, source: ShownSource) -> tuple[int, str]:
    """What every simulated model thinks."""
    return (0, "") if source.text == UNRELATED else opinion(key_point, source)
