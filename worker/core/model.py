"""The nouns of the domain: an answer, its judgement, and the attribution computed from both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import NewType

TenantId = NewType("TenantId", str)
AnswerId = NewType("AnswerId", str)
SourceId = NewType("SourceId", str)
OwnerId = NewType("OwnerId", str)

SUPPORT_SCALE = 10_000
"""A support of 1.0 in integer units: supports enter arithmetic in units of 10⁻⁴."""

UNIT_SCALE = 10**12
"""A credit, share, utility or residual of 1.0 in integer units of 10⁻¹²."""


def nearest_float(units: int) -> float:
    """Units of 10⁻¹² as a number for reading; its shortest decimal has at most the twelve digits of the units."""
    return units / UNIT_SCALE


class Status(StrEnum):
    """How a settled answer ended; each is stored and published, none is an error."""

    ATTRIBUTED = "attributed"
    UNGROUNDED = "ungrounded"
    NO_KEY_POINTS = "no_key_points"
    NO_SOURCES = "no_sources"


class QuoteOrigin(StrEnum):
    """How the evidence of a support was found in its source."""

    VERBATIM = "verbatim"
    LOCATED = "located"


@dataclass(frozen=True, slots=True, order=True)
class AnswerKey:
    """What makes an answer unique, for ever: no deploy or new method settles a key twice."""

    tenant: TenantId
    answer_id: AnswerId


@dataclass(frozen=True, slots=True)
class Source:
    """One document the answer was written from."""

    source_id: SourceId
    text: str
    owner_id: OwnerId | None = None
    url: str | None = None
    title: str | None = None
    license_ref: str | None = None


@dataclass(frozen=True, slots=True)
class SearchUsage:
    """What the search engine itself spent to write the answer, as it reported it."""

    model: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Reward:
    """A budget to be split among the sources of one answer."""

    amount: Decimal
    currency: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as served: the unit of work.

    `content_hash` is SHA-256 over everything that decides credit or money (query, answer, sources, reward);
    the same key with another content hash is a conflict, never a duplicate. `replays` counts how often the record was
    replayed from the dead letters: each opens a new budget of attempts.
    """

    key: AnswerKey
    occurred_at: datetime
    query: str
    text: str
    sources: tuple[Source, ...]
    content_hash: bytes
    search_usage: SearchUsage | None = None
    reward: Reward | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    traceparent: str | None = None
    replays: int = 0


@dataclass(frozen=True, slots=True)
class KeyPoint:
    """One atomic fact or reasoning step of the answer, with its positive integer weight."""

    text: str
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Quote:
    """The words of a source that state a key point."""

    text: str
    origin: QuoteOrigin = QuoteOrigin.VERBATIM


@dataclass(frozen=True, slots=True)
class Usage:
    """LLM tokens in disjoint buckets and their cost; `cost_usd` is None when any call is unpriced."""

    calls: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: Decimal | None = Decimal(0)


@dataclass(frozen=True, slots=True)
class ReusedFrom:
    """Where a copied judgement was made: an answer of the same tenant and content, judged by the same method."""

    answer_id: AnswerId
    revision: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """The support matrix of one answer and its evidence.

    `supports` has shape (key points, sources), in units of 10⁻⁴, columns in the event's source order.
    `quotes` is keyed by (key point index, source index) and holds one quote for every positive support.
    `unevidenced` holds the judge's own number for a cell set to 0 because no evidence was found.
    A copied judgement names its origin in `reused_from`, and its own usage is none. `profile` is set where another
    judge than the configured one made it.
    """

    key_points: tuple[KeyPoint, ...]
    supports: tuple[tuple[int, ...], ...]
    quotes: Mapping[tuple[int, int], Quote]
    grounding_threshold: int
    unevidenced: Mapping[tuple[int, int], int] = field(default_factory=dict)
    shuffle_seed: int | None = None
    usage: Usage = field(default_factory=Usage)
    reused_from: ReusedFrom | None = None
    profile: "JudgeProfile | None" = None


@dataclass(frozen=True, slots=True)
class AnswerIdentity:
    """What a record is about, as far as it can be read: whose answer, and (of a whole, valid event) which content."""

    key: AnswerKey | None = None
    content_hash: bytes | None = None


@dataclass(frozen=True, slots=True)
class SourceCredit:
    """What one source earned, in units of 10⁻¹².

    `credit_units` and `share_units` follow the method's grouping; the `plain_` pair is always the one without
    grouping, so that the effect of grouping can be seen beside it.
    """

    source_id: SourceId
    owner_id: OwnerId | None
    credit_units: int
    share_units: int
    plain_credit_units: int
    plain_share_units: int


@dataclass(frozen=True, slots=True)
class Attribution:
    """The result for one answer: who contributed how much, with everything needed to recompute it."""

    answer: Answer
    status: Status
    method: "Method"
    judgement: Judgement
    utility_units: int
    residual_units: int
    source_credits: tuple[SourceCredit, ...]
    revision: int = 1


@dataclass(frozen=True, slots=True)
class JudgeProfile:
    """Everything about a judge that can change its numbers; part of the method's identity.

    `grounding_threshold` in units of 10⁻⁴: what a coverage must reach in this judge's own numbers.
    """

    name: str
    version: str
    grounding_threshold: int = 3_000
    models: tuple[str, ...] = ()
    prompt_hashes: tuple[str, ...] = ()
    scoring_mode: str = "answer"
    weighting: str = "uniform"


@dataclass(frozen=True, slots=True)
class Method:
    """How credit was computed; `method_hash` is the SHA-256 of `document` in canonical JSON."""

    method_hash: bytes
    document: Mapping[str, object]
