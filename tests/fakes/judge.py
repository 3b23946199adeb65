"""A judge with visible state: gives what it was told to, and remembers what it was asked."""

import asyncio
from collections.abc import Callable

from worker.core.model import Answer, Judgement, JudgeProfile, KeyPoint, Quote


def full_support(answer: Answer) -> Judgement:
    """One key point that every source states in full."""
    sources = range(len(answer.sources))
    return Judgement(
        key_points=(KeyPoint(answer.text),),
        supports=(tuple(10_000 for _ in sources),),
        quotes={(0, index): Quote(answer.sources[index].text) for index in sources},
        grounding_threshold=3_000,
    )


class FakeJudge:
    """Fails with each of `failures` in turn, then gives `verdict(answer)`."""

    def __init__(
        self, verdict: Callable[[Answer], Judgement] = full_support, failures: list[Exception] | None = None
    ) -> None:
        self.verdict = verdict
        self.failures = list(failures or [])
        self.judged: list[Answer] = []

    @property
    def profile(self) -> JudgeProfile:
        return JudgeProfile(name="fake", version="1")

    async def judge(self, answer: Answer) -> Judgement:
        self.judged.append(answer)
        if self.failures:
            raise self.failures.pop(0)
        return self.verdict(answer)


class GatedJudge(FakeJudge):
    """Lets through as many answers as it was allowed; the others wait in it."""

    def __init__(self, passes: int) -> None:
        super().__init__()
        self._gate = asyncio.Semaphore(passes)

    def allow(self, passes: int) -> None:
        for _ in range(passes):
            self._gate.release()

    async def judge(self, answer: Answer) -> Judgement:
        await self._gate.acquire()
        return await super().judge(answer)
