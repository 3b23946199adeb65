"""Lines of an evaluation file: questions with sources, an answer and human labels, perhaps with a recorded matrix."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from worker.core.model import Answer, AnswerId, AnswerKey, Source, SourceId, TenantId
from worker.core.supports import support_units

# An evaluated answer was never served: every line has the same time, so that judging stays repeatable.
_NO_TIME = datetime(2000, 1, 1, tzinfo=UTC)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class LabelledSource(_Part):
    source_id: Annotated[str, Field(min_length=1)]
    text: Annotated[str, Field(min_length=1)]
    title: str | None = None


class RecordedKeyPoint(_Part):
    """One row of a matrix that a judge made earlier; a support per source, none missing."""

    text: str
    importance: Annotated[int, Field(ge=1)] = 1
    support: dict[str, Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]]


class LabelledAnswer(_Part):
    """One answer, and which of its sources people found relevant."""

    dataset: Annotated[str, Field(min_length=1)]
    query_id: Annotated[str, Field(min_length=1)]
    query: str
    answer: str
    sources: Annotated[tuple[LabelledSource, ...], Field(min_length=1)]
    relevant: Annotated[frozenset[str], Field(min_length=1)]
    key_points: tuple[RecordedKeyPoint, ...] = ()

    @model_validator(mode="after")
    def ids_agree(self) -> Self:
        ids = {source.source_id for source in self.sources}
        if len(ids) != len(self.sources):
            raise ValueError("sources: a source_id is repeated")
        if unknown := sorted(self.relevant - ids):
            raise ValueError(f"relevant: no such source: {', '.join(unknown)}")
        for number, key_point in enumerate(self.key_points):
            if key_point.support.keys() != ids:
                raise ValueError(f"key_points[{number}].support: give exactly one number per source")
        return self

    @property
    def relevant_positions(self) -> tuple[int, ...]:
        return tuple(number for number, source in enumerate(self.sources) if source.source_id in self.relevant)

    @property
    def recorded_supports(self) -> list[list[int]]:
        """The recorded matrix in units of 10⁻⁴, shape (key points, sources)."""
        return [
            [support_units(key_point.support[source.source_id]) for source in self.sources]
            for key_point in self.key_points
        ]

    def as_served(self) -> Answer:
        return Answer(
            key=AnswerKey(TenantId(self.dataset), AnswerId(self.query_id)),
            occurred_at=_NO_TIME,
            query=self.query,
            text=self.answer,
            sources=tuple(
                Source(SourceId(source.source_id), source.text, title=source.title) for source in self.sources
            ),
            content_hash=b"",
        )


@dataclass(frozen=True, slots=True)
class LabelledLine:
    """A line that can be used, and where it stands: `file:line`."""

    place: str
    answer: LabelledAnswer


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with the line that stands there."""

    place: str
    text: str


def read_lines(path: Path) -> Iterator[LabelledLine | Problem]:
    """Every line of a file that is not blank."""
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if line.strip():
            yield _read_line(f"{path}:{number}", line)


def _read_line(place: str, line: bytes) -> LabelledLine | Problem:
    try:
        return LabelledLine(place, LabelledAnswer.model_validate_json(line))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in problem["loc"])
        return Problem(place, f"{field}: {problem['msg']}" if field else problem["msg"])
