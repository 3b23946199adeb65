"""What decides whether two answers have the same judgement."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest

from tests.support import samples
from worker.core.model import Answer, OwnerId, Reward, SourceId
from worker.core.reuse import is_judged, reuse_hash

METHOD = b"m" * 32
BASE = samples.answer()


def with_source(answer: Answer, **changes: object) -> Answer:
    first, *others = answer.sources
    return replace(answer, sources=(replace(first, **changes), *others))  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(
    "change",
    [
        lambda a: replace(a, query="What is coffee?"),
        lambda a: replace(a, text="Tea is a plant."),
        lambda a: with_source(a, text="Another text."),
        lambda a: with_source(a, title="A title"),
        lambda a: replace(a, sources=a.sources[:-1]),
        lambda a: replace(a, sources=a.sources[::-1]),
    ],
)
def test_what_a_judge_is_shown_decides(change: Callable[[Answer], Answer]) -> None:
    assert reuse_hash(change(BASE), METHOD) != reuse_hash(BASE, METHOD)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: replace(a, key=replace(a.key, answer_id="a-2")),
        lambda a: replace(a, labels={"page": "2"}),
        lambda a: replace(a, reward=Reward(Decimal(1), "EUR")),
        lambda a: replace(a, content_hash=b"x" * 32),
        lambda a: with_source(a, source_id=SourceId("other")),
        lambda a: with_source(a, owner_id=OwnerId("other")),
        lambda a: with_source(a, url="https://example.org/"),
        lambda a: with_source(a, title=""),
    ],
)
def test_what_a_judge_is_not_shown_does_not(change: Callable[[Answer], Answer]) -> None:
    assert reuse_hash(change(BASE), METHOD) == reuse_hash(BASE, METHOD)


def test_the_method_decides() -> None:
    assert reuse_hash(BASE, METHOD) != reuse_hash(BASE, b"n" * 32)


def test_words_that_move_from_one_text_to_its_neighbour_make_another_content() -> None:
    one = replace(BASE, query="tea", text="pot")
    other = replace(BASE, query="teap", text="ot")
    assert reuse_hash(one, METHOD) != reuse_hash(other, METHOD)


def test_every_string_has_a_hash() -> None:
    assert len(reuse_hash(replace(BASE, query="a\x00b\ud800"), METHOD)) == 32


@pytest.mark.parametrize(
    ("answer", "judged"), [(BASE, True), (replace(BASE, sources=()), False), (replace(BASE, text=" \n"), False)]
)
def test_an_answer_without_sources_or_text_is_not_judged(answer: Answer, judged: bool) -> None:
    assert is_judged(answer) is judged
