"""The local judge: words counted in this process; no network, no key, no cost."""

import asyncio

from worker.core.local.judging import judging, profile_of
from worker.core.model import Answer, Judgement, JudgeProfile

TURN_S = 0.002
"""How long judging may keep the event loop before everything else on it gets its turn."""


class LocalJudge:
    """Implements `ports.Judge`; the same answer always gets the same judgement.

    It works on the event loop, one answer at a time, and gives way every few milliseconds. A thread would be no
    faster, hold the interpreter's lock for longer stretches, and run on when cancelled; answers judged side by side
    would each add their turn to everyone's wait. Cancellation takes effect at the next turn and leaves nothing behind.
    """

    def __init__(self, key_points_max: int) -> None:
        self._key_points_max = key_points_max
        self._busy = asyncio.Lock()

    @property
    def profile(self) -> JudgeProfile:
        return profile_of(self._key_points_max)

    async def judge(self, answer: Answer) -> Judgement:
        """Raises nothing of its own; an answer without words that carry content has no key points."""
        async with self._busy:
            return await self._judge(answer)

    async def _judge(self, answer: Answer) -> Judgement:
        now_s = asyncio.get_running_loop().time
        steps = judging(answer, self._key_points_max)
        turn_ends_s = now_s() + TURN_S
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                judgement: Judgement = stop.value
                return judgement
            if now_s() >= turn_ends_s:
                await asyncio.sleep(0)
                turn_ends_s = now_s() + TURN_S
