import asyncio
from dataclasses import replace
from typing import cast

import pytest

from tests.fakes.judge import FakeJudge
from tests.support import samples
from worker.core.model import Answer, Judgement, JudgeProfile
from worker.errors import RetryableError, UnavailableError
from worker.judge import JudgeAnswer, flaw_of


@pytest.mark.parametrize(
    "answer",
    [samples.answer(source_count=0), samples.answer(text=""), samples.answer(text=" \n\t\u3000")],
    ids=["no sources", "empty", "white space"],
)
async def test_nothing_to_judge_is_never_asked(answer: Answer) -> None:
    judge = FakeJudge()
    assert await JudgeAnswer(judge, deadline_s=1)(answer) == Judgement((), (), {}, judge.profile.grounding_threshold)
    assert judge.judged == []


async def test_a_whole_judgement_passes_untouched() -> None:
    expected = samples.judgement()
    assert await JudgeAnswer(FakeJudge(lambda _: expected), deadline_s=1)(samples.answer()) is expected


class SilentJudge:
    profile = JudgeProfile(name="silent", version="1")

    async def judge(self, answer: Answer) -> Judgement:
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_judge_that_hangs_uses_up_an_attempt_at_its_deadline() -> None:
    """faust#458: one hung event pins the low-water mark for ever."""
    with pytest.raises(RetryableError, match=r"no verdict within 0\.01 s"):
        await JudgeAnswer(SilentJudge(), deadline_s=0.01)(samples.answer())


async def test_an_outage_of_the_judge_is_not_the_answers_fault() -> None:
    judge = FakeJudge(failures=[UnavailableError("down")])
    with pytest.raises(UnavailableError):
        await JudgeAnswer(judge, deadline_s=1)(samples.answer())


good = samples.judgement()


@pytest.mark.parametrize(
    ("judgement", "problem"),
    [
        (replace(good, supports=()), "0 rows of supports for 1 key points"),
        (replace(good, supports=((1, 2),)), "row 0 has 2 supports for 3 sources"),
        (replace(good, supports=((10_001, 0, 0),)), "not an integer within 0..10000"),
        (replace(good, supports=((-1, 0, 0),)), "not an integer within 0..10000"),
        (replace(good, supports=((True, 0, 0),)), "not an integer within 0..10000"),
        (replace(good, supports=((cast("int", float("nan")), 0, 0),)), "not an integer within 0..10000"),
        (replace(good, quotes={}), "no evidence"),
    ],
)
async def test_an_error_is_never_a_number(judgement: Judgement, problem: str) -> None:
    assert problem in (flaw_of(judgement, source_count=3) or "")
    with pytest.raises(RetryableError, match="unusable"):
        await JudgeAnswer(FakeJudge(lambda _: judgement), deadline_s=1)(samples.answer())
