"""The nouns of one LLM call: what is asked, what came back, what it used."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """What a call is for."""

    DECOMPOSE = "decompose"
    REFINE = "refine"
    SCORE = "score"


class Finish(StrEnum):
    """How a completion ended, in our words; anything a provider says that we do not know is UNKNOWN, a failure."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class UsageSource(StrEnum):
    """Who counted the tokens."""

    PROVIDER = "provider"
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One call, whole and provider-neutral: the same answer always builds the same request, byte for byte.

    `instructions` never vary between answers, and `context` (the sources) never between the calls of one answer, so
    that a provider's prompt cache can serve both; `question` is what this call alone asks. `schema` is the JSON
    Schema of the reply.
    """

    stage: Stage
    instructions: str
    context: str
    question: str
    schema_name: str
    schema: Mapping[str, object]
    output_tokens_max: int


@dataclass(frozen=True, slots=True)
class CompletionUsage:
    """Tokens of one call in disjoint buckets: input excludes cached tokens, output excludes reasoning."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    source: UsageSource = UsageSource.PROVIDER


@dataclass(frozen=True, slots=True)
class Completion:
    """What came back: `text` is the model's message (None when it sent none), `raw` the response body as received."""

    finish: Finish
    text: str | None
    usage: CompletionUsage
    raw: str
    provider_request_id: str | None = None
