"""A whole judging over HTTP: every stage and mode, both providers, and the local judge's credit at the end."""

from pathlib import Path

import pytest

import worker.demo
from tests.support.llm import DIALECTS, LIMITS, Dialect, harbour_answer, judged_by, provider_on
from tests.support.samples import OCCURRED_AT
from worker.codec.answers import decode_answer
from worker.core.asking import JudgingMethod, ModelLimits
from worker.core.evidence import folded_source, holds_quote
from worker.core.llm import Stage
from worker.core.local.judging import judging
from worker.core.local.steps import returned
from worker.core.model import Answer, Judgement
from worker.core.prompts import Refinement, ScoringMode, Weighting
from worker.core.records import Record
from worker.embedded.llm_emulator.emulator import LlmEmulator
from worker.embedded.llm_emulator.faults import Fault
from worker.settings import IntakeSettings

SAMPLES = Path(worker.demo.__file__).with_name("sample_answers.jsonl")
REPAIRED = [
    Fault.MISSING_CELLS, Fault.WRONG_IDS, Fault.DUPLICATE_CELLS, Fault.OUT_OF_RANGE, Fault.NAN_SCORES, Fault.NO_SCORES,
    Fault.INVENTED_QUOTES, Fault.NO_QUOTES, Fault.AMID_PROSE, Fault.TWO_OBJECTS, Fault.MESSAGE_EMPTY, Fault.NUL,
    Fault.LONE_SURROGATE, Fault.HUGE, Fault.DEEP,
]  # fmt: skip


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.provider)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    chosen: Dialect = request.param
    return chosen


def local(answer: Answer) -> Judgement:
    return returned(judging(answer, 64))


def sample_answers() -> list[Answer]:
    records = [
        Record("answers", 0, offset, 0, None, line) for offset, line in enumerate(SAMPLES.read_bytes().splitlines())
    ]
    answers = [decode_answer(record, limits=IntakeSettings(), now=OCCURRED_AT).answer for record in records]
    return [answer for answer in answers if answer.sources and answer.text.strip()]


async def judged(dialect: Dialect, answer: Answer, method: JudgingMethod, limits: ModelLimits = LIMITS) -> Judgement:
    async with LlmEmulator() as emulator, provider_on(emulator, dialect) as provider:
        judgement = await judged_by(provider, answer, method, limits)
    assert isinstance(judgement, Judgement)
    return judgement


async def test_the_sample_answers_get_the_local_judges_supports_each_with_its_evidence(dialect: Dialect) -> None:
    async with LlmEmulator() as emulator, provider_on(emulator, dialect) as provider:
        for answer in sample_answers():
            judgement, expected = await judged_by(provider, answer), local(answer)
            assert isinstance(judgement, Judgement)
            assert judgement.key_points == expected.key_points
            assert judgement.supports == expected.supports
            for (_, source), quote in judgement.quotes.items():
                assert holds_quote(quote.text, folded_source(answer.sources[source]))


@pytest.mark.parametrize("mode", ScoringMode)
async def test_every_scoring_mode_gives_the_same_supports(dialect: Dialect, mode: ScoringMode) -> None:
    answer = harbour_answer()
    assert (await judged(dialect, answer, JudgingMethod(scoring_mode=mode))).supports == local(answer).supports


@pytest.mark.parametrize("weighting", Weighting)
@pytest.mark.parametrize("refinement", Refinement)
async def test_every_way_to_key_points_gives_the_same_supports(
    dialect: Dialect, weighting: Weighting, refinement: Refinement
) -> None:
    answer = harbour_answer()
    method = JudgingMethod(weighting=weighting, refinement=refinement)
    assert (await judged(dialect, answer, method)).supports == local(answer).supports


async def test_an_answer_too_large_for_one_call_is_split_and_judged_the_same(dialect: Dialect) -> None:
    answer = harbour_answer(sources=12, sentences_each=20)
    limits = ModelLimits(input_tokens_max=2_000, output_tokens_max=4_000)
    async with LlmEmulator() as emulator, provider_on(emulator, dialect) as provider:
        judgement = await judged_by(provider, answer, None, limits)
        assert isinstance(judgement, Judgement)
        assert judgement.supports == local(answer).supports
        assert sum(line.stage is Stage.SCORE for line in emulator.bill.lines) > 1


@pytest.mark.parametrize("fault", REPAIRED)
async def test_one_repair_brings_the_same_supports_and_is_on_the_bill(dialect: Dialect, fault: Fault) -> None:
    answer = harbour_answer()
    async with LlmEmulator() as emulator, provider_on(emulator, dialect) as provider:
        emulator.next_faults(fault, stage=Stage.SCORE)
        judgement = await judged_by(provider, answer)
        assert isinstance(judgement, Judgement)
        assert judgement.supports == local(answer).supports
        assert [line.stage for line in emulator.bill.lines] == [Stage.DECOMPOSE, Stage.SCORE, Stage.SCORE]


async def test_a_reply_that_was_cut_is_asked_for_once_more_with_more_room(dialect: Dialect) -> None:
    finish = {"openai": Fault.FINISH_LENGTH, "anthropic": Fault.FINISH_MAX_TOKENS}[dialect.provider]
    answer = harbour_answer()
    async with LlmEmulator() as emulator, provider_on(emulator, dialect) as provider:
        emulator.next_faults(finish, stage=Stage.SCORE)
        judgement = await judged_by(provider, answer)
        assert isinstance(judgement, Judgement)
        assert judgement.supports == local(answer).supports
        caps = [request.json["max_tokens"] for request in emulator.requests]
        assert caps[2] > caps[1]
