"""One stored attribution against what its own evidence and method give: every unit, bit for bit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from worker.adapters.postgres.evidence import Evidence, decode_evidence
from worker.core.credit import Credit, compute_credit
from worker.core.method import credit_rules_of, method_of
from worker.core.model import Method, Status
from worker.core.policy import Grouping


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A row of source_attributions."""

    source_id: str
    owner_id: str | None
    credit_units: int
    share_units: int
    plain_credit_units: int
    plain_share_units: int


@dataclass(frozen=True, slots=True)
class StoredAttribution:
    """A row of attributions with its sources in order of position, and its method's document where there is one."""

    status: str
    utility_units: int
    residual_units: int
    source_count: int
    key_point_count: int
    ungrounded_key_point_count: int
    method_hash: bytes
    method_document: Mapping[str, Any] | None
    evidence: Mapping[str, Any]
    sources: Sequence[StoredSource]


def differences_of(stored: StoredAttribution) -> tuple[str, ...]:
    """What is stored otherwise than it would be computed; empty when all is equal."""
    if stored.method_document is None:
        return (f"methods has no row for method_hash {stored.method_hash.hex()}",)
    try:
        method = method_of(stored.method_document)
        if method.method_hash != stored.method_hash:
            return (f"method_hash is {stored.method_hash.hex()}, its document hashes to {method.method_hash.hex()}",)
        evidence = decode_evidence(stored.evidence)
        grouped, plain = _recomputed(evidence, method)
        return (*_differing_totals(stored, evidence, grouped), *_differing_sources(stored, evidence, grouped, plain))
    except ValueError as error:
        return (f"cannot be recomputed: {error}",)
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        # Whoever changed a document may have left any shape in it; an audit tells that and goes on.
        return (f"cannot be recomputed: a stored document is malformed ({type(error).__name__}: {error})",)


def _recomputed(evidence: Evidence, method: Method) -> tuple[Credit, Credit]:
    policy, grouping = credit_rules_of(method)
    weights = [key_point.weight for key_point in evidence.key_points]
    supports, owners = evidence.supports, evidence.owner_ids
    plain = compute_credit(supports, weights, owners=owners, policy=policy)
    if grouping is Grouping.SOURCE:
        return plain, plain
    return compute_credit(supports, weights, owners=owners, policy=policy, grouping=grouping), plain


def _differing_totals(stored: StoredAttribution, evidence: Evidence, grouped: Credit) -> Iterator[str]:
    coverages = [max(row, default=0) for row in evidence.supports]
    yield from _differing("status", stored.status, _status_of(evidence, coverages))
    yield from _differing("utility_units", stored.utility_units, grouped.utility_units)
    yield from _differing("residual_units", stored.residual_units, grouped.residual_units)
    yield from _differing("source_count", stored.source_count, len(evidence.source_ids))
    yield from _differing("key_point_count", stored.key_point_count, len(evidence.key_points))
    ungrounded = sum(coverage < evidence.grounding_threshold for coverage in coverages)
    yield from _differing("ungrounded_key_point_count", stored.ungrounded_key_point_count, ungrounded)


def _differing_sources(stored: StoredAttribution, evidence: Evidence, grouped: Credit, plain: Credit) -> Iterator[str]:
    computed = [
        StoredSource(*row)
        for row in zip(
            evidence.source_ids,
            evidence.owner_ids,
            grouped.credit_units,
            grouped.share_units,
            plain.credit_units,
            plain.share_units,
            strict=True,
        )
    ]
    if len(stored.sources) != len(computed):
        yield f"source_attributions has {len(stored.sources)} rows, the evidence {len(computed)} sources"
        return
    for position, (row, expected) in enumerate(zip(stored.sources, computed, strict=True)):
        for name in StoredSource.__slots__:
            yield from _differing(f"{name} of source {position}", getattr(row, name), getattr(expected, name))


def _status_of(evidence: Evidence, coverages: Sequence[int]) -> str:
    if not evidence.source_ids:
        return Status.NO_SOURCES.value
    if not evidence.key_points:
        return Status.NO_KEY_POINTS.value
    return (Status.ATTRIBUTED if any(coverages) else Status.UNGROUNDED).value


def _differing(name: str, stored: object, computed: object) -> Iterator[str]:
    if stored != computed:
        yield f"{name} is stored as {stored}, computed as {computed}"
