"""The emulator reads what the worker asks, and answers as the local judge would: one test for both formats."""

import pytest

from tests.support.llm import LIMITS, SECRET, harbour_answer
from worker.adapters.llm.tokens import count_tokens
from worker.core.asking import Asker, JudgingMethod
from worker.core.fencing import show
from worker.core.llm import CompletionRequest, Stage
from worker.core.matrix import cells_of
from worker.core.model import KeyPoint
from worker.core.prompts import Again, Refinement, ScoringMode, Weighting
from worker.embedded.llm_emulator.judgements import (
    QUOTE_WORDS_MAX,
    Understood,
    instant_opinion,
    local_opinion,
    shortened,
    understood,
)

ANSWER = harbour_answer(sentences=4, sources=5)
KEY_POINTS = [KeyPoint(f"Harbour {number} has trams.") for number in range(4)]
CELLS = cells_of(4, 5)


def asker(method: JudgingMethod) -> Asker:
    return Asker(show(ANSWER, SECRET), method, LIMITS, count_tokens)


def read_back(request: CompletionRequest) -> Understood:
    message = "\n\n".join(part for part in (request.context, request.question) if part)
    read = understood(message, str(request.schema).replace("'", '"'))
    assert read is not None
    return read


@pytest.mark.parametrize("weighting", Weighting)
@pytest.mark.parametrize("again", [None, Again.UNREADABLE, Again.NOTHING_FOUND])
def test_a_decompose_request_is_understood(weighting: Weighting, again: Again | None) -> None:
    read = read_back(asker(JudgingMethod(weighting=weighting)).decompose(again))
    assert (read.stage, read.weighting) == (Stage.DECOMPOSE, weighting)
    assert (read.asked.query, read.asked.answer) == (ANSWER.query, ANSWER.text)


@pytest.mark.parametrize("again", [None, Again.UNREADABLE, Again.NOTHING_FOUND])
def test_a_refine_request_is_understood(again: Again | None) -> None:
    read = read_back(asker(JudgingMethod(refinement=Refinement.OWN_CALL)).refine(KEY_POINTS, again))
    assert read.stage is Stage.REFINE
    assert list(read.asked.key_points.values()) == [key_point.text for key_point in KEY_POINTS]


@pytest.mark.parametrize("mode", ScoringMode)
@pytest.mark.parametrize("again", [None, Again.UNSETTLED_CELLS])
def test_score_requests_ask_for_every_pair_once(mode: ScoringMode, again: Again | None) -> None:
    asked = asker(JudgingMethod(scoring_mode=mode)).score(KEY_POINTS, CELLS, again)
    reads = [read_back(each.request) for each in asked]
    assert {read.stage for read in reads} == {Stage.SCORE}
    pairs = [(key, source) for read in reads for key, source in read.asked.pairs]
    assert len(pairs) == len(set(pairs)) == 4 * 5


def test_only_the_pairs_that_are_asked_again_are_answered() -> None:
    (asked,) = asker(JudgingMethod()).score(KEY_POINTS, [(0, 1), (2, 3)], Again.UNSETTLED_CELLS)
    assert len(read_back(asked.request).asked.pairs) == 2


@pytest.mark.parametrize("message", ["", "Hello!", "<data 1>\nno json\n</data 1>", '<data 1>\n"text"\n</data 1>'])
def test_messages_of_others_are_not_understood(message: str) -> None:
    assert understood(message, "") is None


def test_opinions_are_the_same_every_time() -> None:
    (asked,) = asker(JudgingMethod()).score(KEY_POINTS, CELLS)
    read = read_back(asked.request)
    assert local_opinion(read) == local_opinion(read)
    assert instant_opinion(read) == instant_opinion(read)


def test_a_quote_is_shortened_to_words_that_matter_and_stays_verbatim() -> None:
    text = "one two three four five six seven eight nine ten Harbour has twelve trams and no seals today at all ever"
    quote = shortened(text, frozenset({"harbour"}))
    assert quote in text
    assert len(quote.split()) == QUOTE_WORDS_MAX
    assert "Harbour" in quote
