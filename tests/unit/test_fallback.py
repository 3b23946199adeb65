"""A second judge, while the first one's provider is down and not a moment longer."""

import pytest

from schemas.dead_letter import DeadLetterReason
from tests.fakes.judge import FakeJudge
from tests.support import samples
from worker.app.method import build_credit, build_methods
from worker.core.model import Answer, Judgement, JudgeProfile
from worker.errors import FatalError, PermanentError, RetryableError, UnavailableError
from worker.fallback import FallbackJudge
from worker.judge import JudgeAnswer
from worker.llm_ports import ProviderDownError
from worker.settings import Settings
from worker.telemetry import Telemetry

DOWN = ProviderDownError("the LLM provider is down", retry_after_s=15)


class Second(FakeJudge):
    @property
    def profile(self) -> JudgeProfile:
        return JudgeProfile(name="second", version="1", models=("cheap-1",))


def fallback(*failures: Exception, second: FakeJudge | None = None) -> tuple[FallbackJudge, FakeJudge, FakeJudge]:
    first, second = FakeJudge(failures=list(failures)), second or Second()
    return FallbackJudge(first, second, Telemetry()), first, second


async def test_while_the_first_judge_is_well_the_second_is_never_asked() -> None:
    judge, first, second = fallback()
    judgement = await judge.judge(samples.answer())
    assert (judgement.profile, len(first.judged), second.judged) == (None, 1, [])
    assert judge.profile == first.profile


async def test_while_the_firsts_provider_is_down_the_second_judges_under_its_own_profile() -> None:
    judge, first, second = fallback(DOWN, DOWN)
    for _ in range(2):
        assert (await judge.judge(samples.answer())).profile == second.profile
    assert (await judge.judge(samples.answer())).profile is None
    assert (len(first.judged), len(second.judged)) == (3, 2)


@pytest.mark.parametrize(
    "failure",
    [
        UnavailableError("the database is down"),
        UnavailableError("the total budget is spent; it resets in 60 s"),
        RetryableError("a bad reply"),
        PermanentError(DeadLetterReason.JUDGE_REFUSED, "refused"),
        FatalError("check the API key"),
        ZeroDivisionError(),
    ],
)
async def test_nothing_else_is_a_reason_to_ask_another_judge(failure: Exception) -> None:
    """What the first was paid for would be bought again, or a limit be walked around."""
    judge, _, second = fallback(failure)
    with pytest.raises(type(failure)):
        await judge.judge(samples.answer())
    assert second.judged == []


async def test_when_both_are_down_the_answer_waits() -> None:
    judge, *_ = fallback(DOWN, second=Second(failures=[DOWN]))
    with pytest.raises(ProviderDownError):
        await judge.judge(samples.answer())


async def test_an_attribution_names_the_method_of_the_judge_that_judged_it() -> None:
    judge, first, second = fallback(DOWN)
    settings = Settings()
    methods, credit = build_methods(settings), build_credit(settings, judge.profile)
    judge_answer = JudgeAnswer(judge)

    async def method_hash_of(answer: Answer) -> bytes:
        judgement: Judgement = await judge_answer(answer)
        return credit(answer, judgement).method.method_hash

    by_second, by_first = await method_hash_of(samples.answer("a-1")), await method_hash_of(samples.answer("a-2"))
    assert by_second == methods(second.profile).method_hash
    assert by_first == methods(first.profile).method_hash
    assert by_first != by_second
