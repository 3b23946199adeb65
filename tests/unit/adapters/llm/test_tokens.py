"""Counting tokens, and which contexts are worth caching."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.adapters.llm import shared_contexts
from worker.adapters.llm.shared_contexts import SharedContexts
from worker.adapters.llm.tokens import PIECE_CHARACTERS, count_tokens


def test_tokens_are_those_of_o200k() -> None:
    assert count_tokens("") == 0
    assert count_tokens("hello world") == 2


def test_texts_of_any_length_are_counted() -> None:
    assert count_tokens("so " * 1_000_000) == pytest.approx(1_000_000, rel=0.001)
    assert count_tokens("a" * (PIECE_CHARACTERS + 1)) == count_tokens("a" * PIECE_CHARACTERS) + 1


@given(st.text(st.characters(), max_size=50))
def test_any_text_is_counted_and_no_token_is_less_than_a_byte(text: str) -> None:
    assert count_tokens(text) <= len(text.encode("utf-8", "replace")) + 3 * len(text)


def test_a_context_is_shared_from_its_second_coming_on() -> None:
    contexts = SharedContexts()
    assert [contexts.came_before(text) for text in ("a", "b", "a", "a", "b")] == [False, False, True, True, True]


def test_only_the_latest_contexts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_contexts, "REMEMBERED_MAX", 2)
    contexts = SharedContexts()
    assert not any(contexts.came_before(text) for text in ("a", "b", "c", "a"))
