"""An audit tells of whatever was done to a stored document, and goes on."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support import samples
from tests.support.attributions import attribution_of
from worker.adapters.postgres.recompute import StoredAttribution, StoredSource, differences_of

ATTRIBUTION = attribution_of(judgement=samples.judgement([[10_000, 7_000, 0], [0, 3_000, 3_000]]))
EVIDENCE: dict[str, Any] = {
    "evidence_version": 1,
    "texts": "full",
    "query": "q",
    "answer": "a",
    "sources": [{"source_id": s.source_id, "owner_id": s.owner_id} for s in ATTRIBUTION.answer.sources],
    "key_points": [{"text": "Key point 0.", "weight": 1}, {"text": "Key point 1.", "weight": 1}],
    "supports": [[10_000, 7_000, 0], [0, 3_000, 3_000]],
    "quotes": [],
    "unevidenced": [],
    "grounding_threshold": 3_000,
    "shuffle_seed": None,
}
COMPUTED_FROM = ["sources", "key_points", "supports", "grounding_threshold"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def stored(evidence: Any, document: Any = None) -> StoredAttribution:
    return StoredAttribution(
        status=ATTRIBUTION.status.value,
        utility_units=ATTRIBUTION.utility_units,
        residual_units=ATTRIBUTION.residual_units,
        source_count=3,
        key_point_count=2,
        ungrounded_key_point_count=0,
        method_hash=ATTRIBUTION.method.method_hash,
        method_document=ATTRIBUTION.method.document if document is None else document,
        evidence=evidence,
        sources=[
            StoredSource(
                credit.source_id,
                credit.owner_id,
                credit.credit_units,
                credit.share_units,
                credit.plain_credit_units,
                credit.plain_share_units,
            )
            for credit in ATTRIBUTION.source_credits
        ],
    )


def test_an_untouched_row_has_no_differences() -> None:
    assert differences_of(stored(EVIDENCE)) == ()


@given(st.sampled_from(COMPUTED_FROM), JSON)
def test_any_other_content_of_a_part_is_told_and_never_ends_the_audit(part: str, content: Any) -> None:
    differences = differences_of(stored(EVIDENCE | {part: content}))
    # A threshold below every coverage changes no number.
    if content != EVIDENCE[part] and part != "grounding_threshold":
        assert differences


@given(JSON)
def test_any_other_document_is_told(document: Any) -> None:
    assert differences_of(stored(document))
    assert differences_of(stored(EVIDENCE, document={} if document is None else document))


@given(st.sampled_from(["supports", "key_points", "sources"]), st.integers(0, 2), JSON)
def test_any_other_content_of_an_item_is_told(part: str, index: int, content: Any) -> None:
    evidence = copy.deepcopy(EVIDENCE)
    items = evidence[part]
    index %= len(items)
    if items[index] != content:
        items[index] = content
        assert differences_of(stored(evidence))


@given(st.sampled_from([(0, 0), (0, 1), (1, 1)]), st.integers(1, 10_000))
def test_any_other_support_that_could_have_been_judged_is_told(cell: tuple[int, int], support: int) -> None:
    evidence = copy.deepcopy(EVIDENCE)
    row, column = cell
    if evidence["supports"][row][column] != support:
        evidence["supports"][row][column] = support
        assert differences_of(stored(evidence))
