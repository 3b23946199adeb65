"""The local judge as the worker meets it: the same verdict every time, and never in anyone's way."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from worker.adapters.local_judge import LocalJudge
from worker.core.local.judging import judging, profile_of
from worker.core.local.steps import returned
from worker.core.model import Answer, AnswerId, AnswerKey, Source, SourceId, TenantId, Usage
from worker.ports import Judge

SENTENCES = tuple(f"Harbour {number} has {number + 1} trams and {number + 2} grey seals." for number in range(64))
SMALL = Answer(
    key=AnswerKey(TenantId("t"), AnswerId("a")),
    occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
    query="",
    text=" ".join(SENTENCES[:3]),
    sources=tuple(Source(SourceId(f"s{number}"), " ".join(SENTENCES[number:5])) for number in range(3)),
    content_hash=b"",
)
LARGEST = replace(
    SMALL,
    text=" ".join(SENTENCES),
    sources=tuple(Source(SourceId(f"s{number}"), " ".join(SENTENCES[number % 60 :])) for number in range(500)),
)


async def test_it_is_a_judge_whose_verdict_is_the_pure_one() -> None:
    judge: Judge = LocalJudge(64)
    assert await judge.judge(SMALL) == returned(judging(SMALL, 64))
    assert judge.profile == profile_of(64)


async def test_judging_many_answers_at_once_changes_no_verdict() -> None:
    judge = LocalJudge(2)
    answers = [replace(SMALL, text=" ".join(SENTENCES[:count])) for count in range(12)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(judge.judge(answer)) for answer in answers]
    assert [task.result() for task in tasks] == [returned(judging(answer, 2)) for answer in answers]


async def test_judging_the_largest_answer_lets_everything_else_run_in_between() -> None:
    done = asyncio.Event()
    turns = 0

    async def beat() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    async def judge() -> None:
        judgement = await LocalJudge(64).judge(LARGEST)
        assert (len(judgement.key_points), len(judgement.supports[0])) == (64, 500)
        done.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(beat())
        group.create_task(judge())
    assert turns > 10


async def test_a_cancelled_judging_stops_and_lets_the_next_one_in() -> None:
    judge = LocalJudge(64)
    async with asyncio.TaskGroup() as group:
        cancelled = group.create_task(judge.judge(LARGEST))
        await asyncio.sleep(0)
        cancelled.cancel()
    assert cancelled.cancelled()
    assert (await judge.judge(SMALL)).key_points


async def test_an_answer_waiting_for_its_turn_can_be_cancelled_too() -> None:
    judge = LocalJudge(64)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(judge.judge(LARGEST))
        waiting = group.create_task(judge.judge(SMALL))
        await asyncio.sleep(0)
        waiting.cancel()
    assert waiting.cancelled()
    assert first.result().key_points


@pytest.mark.parametrize("text", ["", "👍", "Yes."])
async def test_an_answer_that_claims_nothing_has_no_key_points(text: str) -> None:
    assert (await LocalJudge(64).judge(replace(SMALL, text=text))).key_points == ()


async def test_it_costs_nothing_and_calls_nobody() -> None:
    assert (await LocalJudge(64).judge(SMALL)).usage == Usage(calls=0, cost_usd=Decimal(0))
