"""Attribution without Kafka and without a database."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

from worker.adapters.unstored import UnstoredJudgements
from worker.app.judges import open_judge, unstored_accounts
from worker.app.method import build_credit, build_decoder, build_methods, build_retry_policy
from worker.core.model import Answer, Attribution, Judgement
from worker.core.records import Record
from worker.core.retry import RetryPolicy
from worker.errors import RetryableError, UnavailableError
from worker.judge import JudgeAnswer
from worker.ports import Judge
from worker.reuse import ReuseJudgements
from worker.settings import JudgeName, Settings
from worker.telemetry import Telemetry

OUTAGE_TRIES_MAX = 5
"""Somebody waits for the output: what is down so long is told, instead of waited for."""


@asynccontextmanager
async def open_attributor(settings: Settings) -> AsyncIterator[Callable[[Record], Awaitable[Attribution]]]:
    """Record in, attribution out, exactly as the worker computes it; nothing is stored."""
    telemetry = Telemetry()
    decode = build_decoder(settings, telemetry)
    policy = build_retry_policy(settings)
    async with open_judge(settings, telemetry, unstored_accounts()) as judge:
        judge_answer = _judging(settings, judge, telemetry)
        credit = build_credit(settings, judge.profile)

        async def attribute_record(record: Record) -> Attribution:
            answer = decode(record)
            return credit(answer, await _patiently(lambda: judge_answer(answer), policy))

        yield attribute_record


def _judging(settings: Settings, judge: Judge, telemetry: Telemetry) -> Callable[[Answer], Awaitable[Judgement]]:
    """As the worker judges: what costs money is bought once for equal answers, as far as this process remembers."""
    judge_answer = JudgeAnswer(judge)
    if settings.judge.name is JudgeName.LOCAL or not settings.copies_judgements:
        return judge_answer
    method = build_methods(settings)(judge.profile)
    return ReuseJudgements(
        judge_answer, cache=UnstoredJudgements(), method_hash=method.method_hash, telemetry=telemetry
    )


async def _patiently(step: Callable[[], Awaitable[Judgement]], policy: RetryPolicy) -> Judgement:
    """Raises what the step raises, once its attempts, or those of waiting for something down, are used up."""
    attempt = 0
    outage_tries = 0
    for _ in count():
        try:
            return await step()
        except RetryableError as error:
            attempt += 1
            pause_s = policy.pause_after_failure_s(attempt, random.random(), error.retry_after_s)  # noqa: S311  # jitter
            if pause_s is None:
                raise
        except UnavailableError as error:
            outage_tries += 1
            if outage_tries >= OUTAGE_TRIES_MAX:
                raise
            pause_s = policy.pause_in_outage_s(outage_tries, random.random(), error.retry_after_s)  # noqa: S311  # jitter
        await asyncio.sleep(pause_s)
    raise AssertionError("unreachable: attempts and waits end")
