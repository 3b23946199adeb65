"""`AttributionComputed` v1: who contributed how much to one answer; what the worker publishes."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from schemas.answer_generated import SOURCES_MAX
from schemas.values import (
    AMOUNT_PATTERN,
    COST_PATTERN,
    CREDIT_UNITS_ONE,
    CURRENCY_PATTERN,
    PUBLISHED,
    Count,
    Fraction,
    Identifier,
    Sha256Hex,
    Timestamp,
    Units,
    fraction,
)


class AttributionStatus(StrEnum):
    """How the answer ended; only `attributed` has shares, the others pay nobody."""

    ATTRIBUTED = "attributed"
    UNGROUNDED = "ungrounded"
    NO_KEY_POINTS = "no_key_points"
    NO_SOURCES = "no_sources"


class CreditMethod(BaseModel):
    """How credit was computed; `method_hash` is the SHA-256 of `document` in canonical JSON."""

    model_config = PUBLISHED

    method_hash: Sha256Hex
    document: Annotated[dict[str, Any], Field(description="utility, policy, grouping, scoring, models, prompt hashes")]


class SourceShare(BaseModel):
    """What one source earned: credit is its part of the answer, share its part of a fixed budget."""

    model_config = PUBLISHED

    source_id: Identifier
    owner_id: Identifier | None
    credit_units: Units
    credit: Fraction
    share_units: Units
    share: Fraction


class OwnerShare(BaseModel):
    """What all sources of one owner earned together; `owner_id` null sums the sources that name no owner."""

    model_config = PUBLISHED

    owner_id: Identifier | None
    source_count: Annotated[int, Field(ge=1, le=SOURCES_MAX)]
    credit_units: Units
    credit: Fraction
    share_units: Units
    share: Fraction


class LlmUsage(BaseModel):
    """Tokens in disjoint buckets and what they cost."""

    model_config = PUBLISHED

    calls: Count
    input_tokens: Count
    cache_read_tokens: Count
    cache_write_tokens: Count
    output_tokens: Count
    reasoning_tokens: Count
    cost_usd: Annotated[str | None, Field(pattern=COST_PATTERN, description="null: a call of unknown price")]


class EchoedReward(BaseModel):
    """The budget as the answer event gave it; splitting it is not this event's business."""

    model_config = PUBLISHED

    amount: Annotated[str, Field(pattern=AMOUNT_PATTERN)]
    currency: Annotated[str, Field(pattern=CURRENCY_PATTERN)]


class AttributionComputed(BaseModel):
    """The attribution of one answer; a higher `revision` of the same answer replaces the one it supersedes.

    The sum of `share_units` over sources is 10¹² (attributed) or 0; the sum of `credit_units` is `utility_units`;
    `utility_units` + `residual_units` = 10¹². The same sums hold over owners. Sources stand in the event's order.
    """

    model_config = PUBLISHED

    schema_version: Literal[1]
    tenant: Identifier
    answer_id: Identifier
    revision: Annotated[int, Field(ge=1, lt=2**31)]
    supersedes: Annotated[int | None, Field(ge=1, description="the revision this one replaces; null for the first")]
    status: AttributionStatus
    occurred_at: Annotated[Timestamp, Field(description="of the answer")]
    computed_at: Timestamp
    content_hash: Annotated[Sha256Hex, Field(description="of the query, answer, sources and reward that were judged")]
    method: CreditMethod
    code_version: str
    key_point_count: Count
    utility_units: Units
    utility: Fraction
    residual_units: Units
    residual: Fraction
    sources: Annotated[tuple[SourceShare, ...], Field(max_length=SOURCES_MAX)]
    owners: Annotated[tuple[OwnerShare, ...], Field(max_length=SOURCES_MAX)]
    llm_usage: LlmUsage
    reward: EchoedReward | None

    @model_validator(mode="after")
    def sums_are_exact(self) -> Self:
        shares_total = CREDIT_UNITS_ONE if self.status is AttributionStatus.ATTRIBUTED else 0
        for name, earned in (("sources", self.sources), ("owners", self.owners)):
            self._require_totals(name, earned, shares_total)
        if self.utility_units + self.residual_units != CREDIT_UNITS_ONE:
            raise ValueError(f"utility_units + residual_units must be {CREDIT_UNITS_ONE}")
        if self.utility != fraction(self.utility_units) or self.residual != fraction(self.residual_units):
            raise ValueError("utility and residual must be utility_units and residual_units as decimals")
        return self

    @model_validator(mode="after")
    def only_a_later_revision_supersedes(self) -> Self:
        if (self.supersedes is None) != (self.revision == 1) or (self.supersedes or 0) >= self.revision:
            raise ValueError("supersedes must be null for revision 1 and an earlier revision otherwise")
        return self

    def _require_totals(self, name: str, earned: Iterable[SourceShare | OwnerShare], shares_total: int) -> None:
        share_units = credit_units = 0
        for one in earned:
            share_units += one.share_units
            credit_units += one.credit_units
            if one.credit != fraction(one.credit_units) or one.share != fraction(one.share_units):
                raise ValueError(f"credit and share of {name} must be credit_units and share_units as decimals")
        if share_units != shares_total:
            raise ValueError(f"share_units of {name} must add up to {shares_total} for status {self.status}")
        if credit_units != self.utility_units:
            raise ValueError(f"credit_units of {name} must add up to utility_units")
