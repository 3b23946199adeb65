"""A second judge for the time the first one is down."""

from dataclasses import replace

from worker.core.model import Answer, Judgement, JudgeProfile
from worker.llm_ports import ProviderDownError
from worker.ports import Judge
from worker.telemetry import Telemetry


class FallbackJudge:
    """Asks `second` while the provider of `first` is down; what it judges carries its own profile, and so its method.

    Not while anything else is down: a database that cannot be reached stops both, and a spent budget is meant to.
    """

    def __init__(self, first: Judge, second: Judge, telemetry: Telemetry) -> None:
        self._first = first
        self._second = second
        self._telemetry = telemetry

    @property
    def profile(self) -> JudgeProfile:
        return self._first.profile

    async def judge(self, answer: Answer) -> Judgement:
        try:
            return await self._first.judge(answer)
        except ProviderDownError as error:
            self._telemetry.fell_back(str(error))
        judgement = await self._second.judge(answer)
        return replace(judgement, profile=self._second.profile)
