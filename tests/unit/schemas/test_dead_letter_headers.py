import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.dead_letter import DeadLetterHeaders, DeadLetterReason, RecordHeaders

texts = st.text(st.characters(exclude_categories=["Cs"]))
whole = st.builds(
    DeadLetterHeaders,
    reason=st.sampled_from(DeadLetterReason),
    detail=texts,
    topic=texts,
    partition=st.integers(0, 2**31),
    offset=st.integers(0, 2**63),
    timestamp=st.integers(-1, 2**63),
    attempts=st.integers(0, 100),
    code_version=texts,
    truncated=st.just(value=False),
    original_size_bytes=st.none(),
    original_sha256=st.none(),
)
own_headers = st.lists(st.tuples(st.text(max_size=10), st.binary(max_size=10) | st.none())).map(tuple)


@given(whole, own_headers)
def test_the_headers_come_back_and_leave_the_records_own_untouched(
    added: DeadLetterHeaders, own: RecordHeaders
) -> None:
    assert DeadLetterHeaders.split(own + added.encode()) == (own, added)


@given(whole, whole)
def test_a_dead_letter_that_died_again_tells_its_last_reason_and_keeps_the_first(
    first: DeadLetterHeaders, last: DeadLetterHeaders
) -> None:
    assert DeadLetterHeaders.split(first.encode() + last.encode()) == (first.encode(), last)


@given(whole)
def test_headers_that_a_carrier_added_behind_ours_are_kept(added: DeadLetterHeaders) -> None:
    carried = (("mirror-hop", b"1"),)
    assert DeadLetterHeaders.split(added.encode() + carried) == (carried, added)


def test_a_record_without_our_headers_is_no_dead_letter() -> None:
    with pytest.raises(ValueError, match="dlq_reason"):
        DeadLetterHeaders.split((("content-type", b"application/json"),))


@given(whole, st.data())
def test_an_incomplete_block_is_refused(added: DeadLetterHeaders, data: st.DataObject) -> None:
    block = list(added.encode())
    block.remove(data.draw(st.sampled_from(block)))
    with pytest.raises(ValueError, match=r"dlq_reason|Field required"):
        DeadLetterHeaders.split(tuple(block))


def test_a_cut_record_must_say_how_large_it_was() -> None:
    complete = {name.removeprefix("dlq_"): text.decode() for name, text in EXAMPLE.encode()}
    with pytest.raises(ValueError, match="come together"):
        DeadLetterHeaders.model_validate_strings({**complete, "truncated": "true"})


EXAMPLE = DeadLetterHeaders(
    reason=DeadLetterReason.NOT_JSON,
    detail="EOF",
    topic="answers",
    partition=0,
    offset=0,
    timestamp=0,
    attempts=1,
    code_version="0.1.0",
)
