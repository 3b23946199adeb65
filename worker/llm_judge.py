"""The judge that is a language model: moves one answer's requests through the calls until there is a verdict."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeAlias, assert_never

from schemas.dead_letter import DeadLetterReason
from worker.calls import Asking, Calls
from worker.core.asking import JudgingMethod, ModelLimits, fingerprint
from worker.core.conversation import Incomplete, IncompleteReason
from worker.core.judging import Judging
from worker.core.llm import Completion, CompletionRequest
from worker.core.model import Answer, Judgement, JudgeProfile
from worker.core.prompts import prompt_hashes
from worker.errors import PermanentError, RetryableError, WorkerError
from worker.llm_ports import CallJournal, Provider
from worker.telemetry import Telemetry

Answered: TypeAlias = tuple[CompletionRequest, Completion, bool]
"""A request, its completion, and whether that was bought now."""

JUDGE_VERSION = "1"
"""Raised when the same replies would give another judgement than before."""


class LlmJudge:
    """Implements `ports.Judge`; calls of one answer, and of many answers, run concurrently.

    Attempts are counted in the journal, not in memory: a redelivered answer is judged again from the responses on
    record, up to the point where it needs a new one.
    """

    def __init__(
        self,
        *,
        provider: Provider,
        calls: Calls,
        journal: CallJournal,
        method: JudgingMethod,
        limits: ModelLimits,
        secret: bytes,
        attempts_max: int,
        count_tokens: Callable[[str], int],
        telemetry: Telemetry,
    ) -> None:
        self._calls = calls
        self._journal = journal
        self._method = method
        self._limits = limits
        self._secret = secret
        self._attempts_max = attempts_max
        self._count_tokens = count_tokens
        self._telemetry = telemetry
        self._admissions = count()
        self.profile = JudgeProfile(
            name=provider.name,
            version=JUDGE_VERSION,
            grounding_threshold=method.grounding_threshold,
            models=(provider.model,),
            prompt_hashes=tuple(prompt_hashes(method.weighting, method.refinement)),
            scoring_mode=method.scoring_mode.value,
            weighting=method.weighting.value,
        )

    async def judge(self, answer: Answer) -> Judgement:
        """Judge from what was paid for, and buy what is missing.

        Raises:
            RetryableError: this attempt gave no whole verdict; the next one uses again all of it that is good.
            PermanentError: refused, too large, or as many attempts as allowed gave no whole verdict.
            UnavailableError, FatalError: as the calls say.
        """
        asking = Asking(answer.key, next(self._admissions))
        led_nowhere: Counter[str] = Counter()
        for attempt in count(1):
            outcome, bought = await self._attempt(answer, asking, led_nowhere)
            if isinstance(outcome, Judgement):
                return replace(outcome, usage=await self._journal.usage_of(answer.key))
            if permanent := _permanent_reason(outcome):
                raise PermanentError(permanent, outcome.detail)
            if attempt >= self._attempts_max:
                raise PermanentError(DeadLetterReason.JUDGE_INCOMPLETE, f"{outcome.detail}, in {attempt} attempts")
            if bought:
                raise RetryableError(outcome.detail, exhausted_reason=DeadLetterReason.JUDGE_INCOMPLETE)
            led_nowhere.update(fingerprint(request) for request in outcome.ask_again)
        raise AssertionError("unreachable: the attempts end")

    async def _attempt(
        self, answer: Answer, asking: Asking, led_nowhere: Counter[str]
    ) -> tuple[Judgement | Incomplete, bool]:
        """One conversation to its end, and whether any of it was bought now."""
        judging = Judging(
            answer, method=self._method, limits=self._limits, secret=self._secret, count_tokens=self._count_tokens
        )
        bought = False
        while (outcome := judging.outcome) is None:
            for request, completion, is_new in await self._all(judging.requests_to_send(), asking, led_nowhere):
                judging.accept(request, completion)
                bought = bought or is_new
        self._telemetry.judged(scrubbed=judging.scrubbed, ignored=sum(judging.ignored.values()))
        return outcome, bought

    async def _all(
        self, requests: Sequence[CompletionRequest], asking: Asking, led_nowhere: Counter[str]
    ) -> Sequence[Answered]:
        """The completions of requests that may be asked at once.

        All are waited for, also when one fails: what the others cost is spent, and their responses will be used.
        """

        async def one(request: CompletionRequest) -> Answered | WorkerError:
            try:
                skip = led_nowhere[fingerprint(request)]
                return request, *await self._calls.completion(request, asking, skip=skip)
            except WorkerError as error:
                return error

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(request)) for request in requests]
        ended = [task.result() for task in running]
        for end in ended:
            if isinstance(end, WorkerError):
                raise end
        return [end for end in ended if not isinstance(end, WorkerError)]


def _permanent_reason(outcome: Incomplete) -> DeadLetterReason | None:
    """Why no further attempt can do better, or None when one may."""
    match outcome.reason:
        case IncompleteReason.REFUSED:
            return DeadLetterReason.JUDGE_REFUSED
        case IncompleteReason.TOO_LARGE:
            return DeadLetterReason.TOO_LARGE
        case (
            IncompleteReason.UNREADABLE
            | IncompleteReason.TRUNCATED
            | IncompleteReason.UNSETTLED_CELLS
            | IncompleteReason.UNKNOWN_FINISH
        ):
            return None
        case _:
            assert_never(outcome.reason)
