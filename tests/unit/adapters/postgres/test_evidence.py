import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import samples
from worker.adapters.postgres.evidence import Evidence, decode_evidence, encode_evidence, evidence_of, text_hash
from worker.adapters.postgres.text import scrubbed
from worker.core.model import SUPPORT_SCALE, KeyPoint, Quote, QuoteOrigin
from worker.settings import TextStorage

STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
ANY_TEXT = st.text(st.characters(categories=["L", "Cs", "Cc", "S"]))


def evidences(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Evidence]:
    def of_shape(shape: tuple[int, int]) -> st.SearchStrategy[Evidence]:
        key_points, sources = shape
        cells = st.tuples(st.integers(0, max(key_points - 1, 0)), st.integers(0, max(sources - 1, 0)))
        row = st.tuples(*[st.integers(0, SUPPORT_SCALE)] * sources)
        return st.builds(
            Evidence,
            texts=st.sampled_from(TextStorage),
            query=st.none() | texts,
            answer=st.none() | texts,
            source_ids=st.tuples(*[texts] * sources),
            owner_ids=st.tuples(*[st.none() | texts] * sources),
            key_points=st.tuples(*[st.builds(KeyPoint, texts, st.integers(1, 1_000))] * key_points),
            supports=st.tuples(*[row] * key_points),
            quotes=st.dictionaries(cells, st.builds(Quote, texts, st.sampled_from(QuoteOrigin)), max_size=4),
            unevidenced=st.dictionaries(cells, st.integers(1, SUPPORT_SCALE), max_size=4),
            grounding_threshold=st.integers(0, SUPPORT_SCALE),
            shuffle_seed=st.none() | st.integers(0, 2**256),
        )

    return st.tuples(st.integers(0, 4), st.integers(0, 4)).flatmap(of_shape)


@given(evidences(STORABLE))
def test_evidence_comes_back_as_it_was(evidence: Evidence) -> None:
    assert decode_evidence(json.loads(encode_evidence(evidence))) == evidence


@given(evidences(ANY_TEXT))
def test_evidence_of_any_text_is_valid_utf8_json_without_nul(evidence: Evidence) -> None:
    """sentry PR#10752, kodus-ai PR#1683: one lone surrogate or NUL aborted a whole batch."""
    decoded = decode_evidence(json.loads(encode_evidence(evidence).encode()))
    assert [point.text for point in decoded.key_points] == [scrubbed(point.text) for point in evidence.key_points]
    assert decoded.source_ids == tuple(scrubbed(source_id) for source_id in evidence.source_ids)
    assert "\x00" not in "".join(quote.text for quote in decoded.quotes.values())


def test_without_texts_only_hashes_are_stored() -> None:
    answer = replace(samples.answer(), query="secret query")
    judgement = samples.judgement()
    encoded = encode_evidence(evidence_of(answer, judgement, TextStorage.HASH))
    decoded = decode_evidence(json.loads(encoded))
    assert decoded.query is None
    assert decoded.answer is None
    assert decoded.supports == judgement.supports
    assert decoded.key_points == (KeyPoint(text_hash(judgement.key_points[0].text).hex()),)
    for text in (answer.query, answer.text, judgement.key_points[0].text, judgement.quotes[0, 0].text):
        assert text not in encoded


@pytest.mark.parametrize(
    "document",
    [{}, {"evidence_version": 2}, {"evidence_version": 1}, {"evidence_version": 1, "texts": "full", "query": None}],
)
def test_a_document_that_is_no_evidence_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="evidence"):
        decode_evidence(document)
