"""`AnswerGenerated` v1: one answer of a search engine, as it was served; what the worker reads."""

from collections import Counter
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, Field, field_validator
from pydantic_core import PydanticCustomError

from schemas.values import (
    AMOUNT_PATTERN,
    CURRENCY_PATTERN,
    LENIENT,
    NON_BLANK_PATTERN,
    Identifier,
    Timestamp,
)

SOURCES_MAX: Final = 500
QUERY_CHARACTERS_MAX: Final = 100_000
ANSWER_CHARACTERS_MAX: Final = 500_000
SOURCE_TEXT_CHARACTERS_MAX: Final = 1_000_000
TITLE_CHARACTERS_MAX: Final = 4_096
URL_CHARACTERS_MAX: Final = 8_192
LICENSE_REF_CHARACTERS_MAX: Final = 1_024
MODEL_CHARACTERS_MAX: Final = 256
SEARCH_TOKENS_MAX: Final = 10**12
LABELS_MAX: Final = 32
LABEL_VALUE_CHARACTERS_MAX: Final = 1_024


class SourceDocument(BaseModel):
    """One document the answer was written from."""

    model_config = LENIENT

    source_id: Annotated[Identifier, Field(description="unique within the answer")]
    text: Annotated[
        str,
        Field(
            max_length=SOURCE_TEXT_CHARACTERS_MAX,
            pattern=NON_BLANK_PATTERN,
            description="what the search engine read; never blank: nobody is judged by a text that nobody had",
        ),
    ]
    owner_id: Annotated[Identifier | None, Field(description="who is paid; without it the source stands alone")] = None
    url: Annotated[str | None, Field(max_length=URL_CHARACTERS_MAX)] = None
    title: Annotated[str | None, Field(max_length=TITLE_CHARACTERS_MAX)] = None
    license_ref: Annotated[str | None, Field(max_length=LICENSE_REF_CHARACTERS_MAX)] = None


class SearchLlm(BaseModel):
    """What the search engine itself spent to write the answer."""

    model_config = LENIENT

    model: Annotated[str, Field(min_length=1, max_length=MODEL_CHARACTERS_MAX)]
    tokens: Annotated[int, Field(ge=0, le=SEARCH_TOKENS_MAX)]


class RewardBudget(BaseModel):
    """A budget to be split among the sources of this answer."""

    model_config = LENIENT

    amount: Annotated[str, Field(pattern=AMOUNT_PATTERN, description="a decimal string, never a JSON number")]
    currency: Annotated[str, Field(pattern=CURRENCY_PATTERN, description="like ISO 4217")]


def _require_number(version: object) -> object:
    # Python's True equals 1; JSON's true does not.
    if isinstance(version, bool):
        raise PydanticCustomError("literal_error", "Input should be 1")
    return version


class AnswerGenerated(BaseModel):
    """One answer as served; unknown fields are ignored, an unknown major version is refused.

    `tenant` and `answer_id` identify the answer for ever. Lengths are counted in Unicode code points.
    """

    model_config = LENIENT

    schema_version: Annotated[Literal[1], BeforeValidator(_require_number)] = 1
    answer_id: Identifier
    tenant: Identifier = "default"
    occurred_at: Annotated[Timestamp, Field(description="not before 2000, not more than a day ahead of the worker")]
    query: Annotated[str, Field(max_length=QUERY_CHARACTERS_MAX)]
    answer: Annotated[str, Field(max_length=ANSWER_CHARACTERS_MAX, description="may be empty: status no_key_points")]
    sources: Annotated[
        tuple[SourceDocument, ...], Field(max_length=SOURCES_MAX, description="may be empty: status no_sources")
    ]
    search_llm: SearchLlm | None = None
    reward: RewardBudget | None = None
    labels: Annotated[
        dict[Identifier, Annotated[str, Field(max_length=LABEL_VALUE_CHARACTERS_MAX)]], Field(max_length=LABELS_MAX)
    ] = Field(default_factory=dict)

    @field_validator("sources")
    @classmethod
    def source_ids_are_unique(cls, sources: tuple[SourceDocument, ...]) -> tuple[SourceDocument, ...]:
        if len({source.source_id for source in sources}) == len(sources):
            return sources
        first, again = _repeated_positions([source.source_id for source in sources])
        raise PydanticCustomError(
            "repeated_source_id",
            "source_id of sources[{again}] repeats that of sources[{first}]",
            {"first": first, "again": again},
        )


def count_unknown_fields(event: AnswerGenerated) -> int:
    """How many fields, at every level we read, this version does not know."""
    parts: tuple[BaseModel | None, ...] = (event, event.search_llm, event.reward, *event.sources)
    return sum(len(part.model_extra) for part in parts if part is not None and part.model_extra)


def _repeated_positions(source_ids: list[str]) -> tuple[int, int]:
    repeated = next(source_id for source_id, times in Counter(source_ids).items() if times > 1)
    first = source_ids.index(repeated)
    return first, source_ids.index(repeated, first + 1)
