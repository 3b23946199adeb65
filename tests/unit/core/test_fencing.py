import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import samples
from worker.core.fencing import (
    BOUNDARY_DIGITS,
    SECRET_BYTES_MIN,
    Fence,
    boundary_of,
    encoded,
    show,
    shuffle_seed_of,
    shuffled,
)
from worker.core.model import AnswerId, AnswerKey, TenantId

SECRET = b"sixteen bytes or more"
FENCE = Fence("111111111111111111")
KEY = AnswerKey(TenantId("lumen"), AnswerId("a-1"))

# Whole planes, lone surrogates and control characters included: what a publisher may send.
any_text = st.text(st.characters(exclude_categories=()))


@given(any_text)
def test_no_text_begins_a_line_or_leaves_one(text: str) -> None:
    cleaned, _ = FENCE.clean(text)
    assert len(encoded(cleaned).splitlines()) == 1


@given(any_text)
def test_a_cleaned_text_can_be_encoded_and_read_back(text: str) -> None:
    cleaned, _ = FENCE.clean(text)
    assert json.loads(encoded(cleaned).encode()) == cleaned
    assert "\x00" not in cleaned


@given(st.text("1 -\\n\n\u2028", min_size=15, max_size=80))
def test_the_boundary_never_stays_in_a_text_or_comes_to_be_in_it(text: str) -> None:
    cleaned, _ = FENCE.clean(text)
    assert FENCE.boundary not in cleaned
    assert FENCE.boundary not in encoded(cleaned)


@pytest.mark.parametrize("length", range(18, 60))
def test_a_text_of_nothing_but_boundaries_does_not_grow_together_into_one(length: int) -> None:
    cleaned, replaced = FENCE.clean("1" * length)
    assert FENCE.boundary not in cleaned
    assert replaced == length // 18


@given(any_text)
def test_what_was_replaced_is_counted_and_nothing_else_changes(text: str) -> None:
    cleaned, replaced = FENCE.clean(text)
    assert cleaned.count("\ufffd") == text.count("\ufffd") + replaced
    assert FENCE.clean(cleaned) == (cleaned, 0)


def test_every_nul_and_lone_surrogate_is_replaced_and_counted() -> None:
    assert FENCE.clean("a\x00b\ud800c") == ("a\ufffdb\ufffdc", 2)


@pytest.mark.parametrize("line_end", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\u2028", "\u2029"])
def test_an_unusual_line_end_becomes_a_usual_one(line_end: str) -> None:
    assert FENCE.clean(f"a{line_end}b") == ("a\nb", 0)


def test_tenant_and_answer_id_do_not_run_into_each_other() -> None:
    one = AnswerKey(TenantId("a"), AnswerId("bc"))
    other = AnswerKey(TenantId("ab"), AnswerId("c"))
    assert boundary_of(one, SECRET) != boundary_of(other, SECRET)
    assert shuffle_seed_of(one, SECRET) != shuffle_seed_of(other, SECRET)


def test_without_the_secret_neither_boundary_nor_order_can_be_told() -> None:
    other = b"another secret of some length"
    assert boundary_of(KEY, SECRET) != boundary_of(KEY, other)
    assert shuffle_seed_of(KEY, SECRET) != shuffle_seed_of(KEY, other)


def test_a_secret_that_could_be_guessed_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes, it has 15"):
        show(samples.answer(), b"x" * (SECRET_BYTES_MIN - 1))


def test_the_derivations_are_those_that_the_docstrings_describe() -> None:
    """Computed apart from this code, from the words of its docstrings; another language must get the same."""
    assert boundary_of(KEY, SECRET) == "410126696453176914"
    assert shuffle_seed_of(KEY, SECRET) == 5_419_475_026_636_406_151
    assert shuffled(6, 5_419_475_026_636_406_151) == (3, 4, 2, 5, 0, 1)


@given(st.integers(0, 40), st.integers(0, 2**63 - 1))
def test_a_shuffle_moves_every_position_and_loses_none(count: int, seed: int) -> None:
    assert sorted(shuffled(count, seed)) == list(range(count))


def test_every_source_is_shown_at_every_position_about_as_often() -> None:
    shown_first = [0] * 4
    for number in range(2_000):
        shown_first[shuffled(4, shuffle_seed_of(replace(KEY, answer_id=AnswerId(f"a-{number}")), SECRET))[0]] += 1
    assert min(shown_first) > 400
    assert max(shown_first) < 600


@given(st.text(min_size=1), st.text(min_size=1))
def test_boundary_and_seed_have_their_stated_size(tenant: str, answer_id: str) -> None:
    key = AnswerKey(TenantId(tenant), AnswerId(answer_id))
    assert len(boundary_of(key, SECRET)) == BOUNDARY_DIGITS
    assert boundary_of(key, SECRET).isdecimal()
    assert 0 <= shuffle_seed_of(key, SECRET) < 2**63


def test_the_ids_shown_tell_the_position_and_nothing_of_the_publisher() -> None:
    shown = show(samples.answer(source_count=5), SECRET)
    assert sorted(shown.source_id(index) for index in range(5)) == ["s1", "s2", "s3", "s4", "s5"]
    assert [shown.source_id(index) for index in shuffled(5, shown.shuffle_seed)] == ["s1", "s2", "s3", "s4", "s5"]
