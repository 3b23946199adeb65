"""An attribution → the CloudEvents message that announces it, in binary mode."""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal

from schemas.attribution_computed import (
    AttributionComputed,
    AttributionStatus,
    CreditMethod,
    EchoedReward,
    LlmUsage,
    OwnerShare,
    SourceShare,
)
from schemas.cloud_events import ATTRIBUTION_COMPUTED_TYPE, JSON_CONTENT_TYPE, SPECVERSION
from schemas.values import SCHEMA_VERSION, fraction
from worker.codec.identity import event_id, message_key
from worker.core.model import Attribution, OwnerId, SourceCredit, Usage
from worker.core.records import Headers, OutboundMessage


def encode_attribution(
    attribution: Attribution, *, topic: str, source_uri: str, code_version: str, computed_at: datetime
) -> OutboundMessage:
    """The same bytes for the same arguments; the sums are proven by the model on the way.

    Raises:
        ValueError: the attribution breaks a law of its contract, which is a bug wherever it was computed.
    """
    computed = _computed(attribution, code_version, computed_at)
    key = attribution.answer.key
    headers: Headers = (
        ("ce_specversion", SPECVERSION.encode()),
        ("ce_type", ATTRIBUTION_COMPUTED_TYPE.encode()),
        ("ce_source", source_uri.encode()),
        ("ce_id", str(event_id(key, attribution.revision)).encode()),
        ("ce_time", _rfc3339(computed_at).encode()),
        ("content-type", JSON_CONTENT_TYPE.encode()),
    )
    if attribution.answer.traceparent is not None:
        headers += (("traceparent", attribution.answer.traceparent.encode()),)
    return OutboundMessage(topic, message_key(key), computed.model_dump_json().encode(), headers)


def _computed(attribution: Attribution, code_version: str, computed_at: datetime) -> AttributionComputed:
    answer, reward = attribution.answer, attribution.answer.reward
    return AttributionComputed(
        schema_version=SCHEMA_VERSION,
        tenant=answer.key.tenant,
        answer_id=answer.key.answer_id,
        revision=attribution.revision,
        supersedes=attribution.revision - 1 or None,
        status=AttributionStatus(attribution.status.value),
        occurred_at=answer.occurred_at,
        computed_at=computed_at.astimezone(UTC),
        content_hash=answer.content_hash.hex(),
        method=CreditMethod(
            method_hash=attribution.method.method_hash.hex(), document=dict(attribution.method.document)
        ),
        code_version=code_version,
        key_point_count=len(attribution.judgement.key_points),
        utility_units=attribution.utility_units,
        utility=fraction(attribution.utility_units),
        residual_units=attribution.residual_units,
        residual=fraction(attribution.residual_units),
        sources=tuple(_source_share(credit) for credit in attribution.source_credits),
        owners=_owner_shares(attribution.source_credits),
        llm_usage=_llm_usage(attribution.judgement.usage),
        reward=EchoedReward(amount=_plain(reward.amount), currency=reward.currency) if reward else None,
    )


def _source_share(credit: SourceCredit) -> SourceShare:
    return SourceShare(
        source_id=credit.source_id,
        owner_id=credit.owner_id,
        credit_units=credit.credit_units,
        credit=fraction(credit.credit_units),
        share_units=credit.share_units,
        share=fraction(credit.share_units),
    )


def _owner_shares(source_credits: Iterable[SourceCredit]) -> tuple[OwnerShare, ...]:
    """Owners in the order of their first source; sources without one are summed under null."""
    by_owner: dict[OwnerId | None, list[SourceCredit]] = {}
    for credit in source_credits:
        by_owner.setdefault(credit.owner_id, []).append(credit)
    return tuple(_owner_share(owner_id, owned) for owner_id, owned in by_owner.items())


def _owner_share(owner_id: OwnerId | None, owned: list[SourceCredit]) -> OwnerShare:
    credit_units = sum(credit.credit_units for credit in owned)
    share_units = sum(credit.share_units for credit in owned)
    return OwnerShare(
        owner_id=owner_id,
        source_count=len(owned),
        credit_units=credit_units,
        credit=fraction(credit_units),
        share_units=share_units,
        share=fraction(share_units),
    )


def _llm_usage(usage: Usage) -> LlmUsage:
    return LlmUsage(
        calls=usage.calls,
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost_usd=None if usage.cost_usd is None else _plain(usage.cost_usd),
    )


def _plain(amount: Decimal) -> str:
    """Never in exponents, every digit kept."""
    return format(amount, "f")


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
