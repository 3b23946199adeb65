"""The support matrix of one answer: asked of the configured judge, under a deadline, and believed only when whole."""

import asyncio

from worker.core.model import SUPPORT_SCALE, Answer, Judgement
from worker.errors import RetryableError
from worker.ports import Judge


class JudgeAnswer:
    """Judges an answer, or says without asking that there is nothing to judge.

    No deadline for judges whose every call has one of its own: what they wait for is not the answer's fault.
    """

    def __init__(self, judge: Judge, *, deadline_s: float | None = None) -> None:
        self._judge = judge
        self._deadline_s = deadline_s
        self._nothing = Judgement((), (), {}, judge.profile.grounding_threshold)

    async def __call__(self, answer: Answer) -> Judgement:
        """The whole judgement; nothing missing, nothing invented.

        Raises:
            RetryableError: the deadline passed, or the judge gave something that is no judgement of this answer.
            PermanentError, UnavailableError: as the judge says.
        """
        if not answer.sources or not answer.text.strip():
            return self._nothing
        try:
            async with asyncio.timeout(self._deadline_s):
                judgement = await self._judge.judge(answer)
        except TimeoutError:
            raise RetryableError(f"the judge gave no verdict within {self._deadline_s:g} s") from None
        problem = flaw_of(judgement, source_count=len(answer.sources))
        if problem is not None:
            raise RetryableError(f"the judge's verdict is unusable: {problem}")
        return judgement


def flaw_of(judgement: Judgement, *, source_count: int) -> str | None:
    """What makes this judgement unusable, or None: an error must never be read as a number."""
    if len(judgement.supports) != len(judgement.key_points):
        return f"{len(judgement.supports)} rows of supports for {len(judgement.key_points)} key points"
    for row_index, row in enumerate(judgement.supports):
        if len(row) != source_count:
            return f"row {row_index} has {len(row)} supports for {source_count} sources"
        for source_index, support in enumerate(row):
            if type(support) is not int or not 0 <= support <= SUPPORT_SCALE:
                return f"the support at ({row_index}, {source_index}) is not an integer within 0..{SUPPORT_SCALE}"
            if support and (row_index, source_index) not in judgement.quotes:
                return f"the support at ({row_index}, {source_index}) has no evidence"
    return None
