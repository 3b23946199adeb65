"""Attribution without Kafka and without a database."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

from worker.app.judges import open_judge, unstored_accounts
from worker.app.method import build_credit, build_decoder, build_retry_policy
from worker.core.model import Answer, Attribution, Judgement
from worker.core.records import Record
from worker.errors import RetryableError
from worker.judge import JudgeAnswer
from worker.settings import Settings
from worker.telemetry import Telemetry


@asynccontextmanager
async def open_attributor(settings: Settings) -> AsyncIterator[Callable[[Record], Awaitable[Attribution]]]:
    """Record in, attribution out, exactly as the worker computes it; nothing is stored."""
    telemetry = Telemetry()
    decode = build_decoder(settings, telemetry)
    policy = build_retry_policy(settings)
    async with open_judge(settings, telemetry, unstored_accounts()) as judge:
        judge_answer = JudgeAnswer(judge)
        credit = build_credit(settings, judge.profile)

        async def judged(answer: Answer) -> Judgement:
            for attempt in count(1):
                try:
                    return await judge_answer(answer)
                except RetryableError as error:
                    pause_s = policy.pause_after_failure_s(attempt, random.random(), error.retry_after_s)  # noqa: S311  # jitter
                    if pause_s is None:
                        raise
                    await asyncio.sleep(pause_s)
            raise AssertionError("unreachable: the attempts end")

        async def attribute_record(record: Record) -> Attribution:
            answer = decode(record)
            return credit(answer, await judged(answer))

        yield attribute_record
