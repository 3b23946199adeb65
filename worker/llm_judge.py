"""The judge that is a language model: moves one answer's requests through the calls until there is a verdict."""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import assert_never
from uuid import UUID

from schemas.dead_letter import DeadLetterReason
from worker.calls import Asking, Calls, Completed
from worker.core.asking import JudgingMethod, ModelLimits, fingerprint
from worker.core.conversation import Incomplete, IncompleteReason
from worker.core.judging import Judging
from worker.core.llm import CompletionRequest, Finish
from worker.core.model import Answer, AnswerKey, Judgement, JudgeProfile
from worker.core.prompts import prompt_hashes
from worker.errors import FatalError, PermanentError, RetryableError, UnavailableError, WorkerError
from worker.llm_ports import CallJournal, Provider
from worker.telemetry import Telemetry

JUDGE_VERSION = "1"
"""Raised when the same replies would give another judgement than before."""

UNFINISHED_MAX = 10_000
"""Answers whose place in the order is remembered; more than are ever in flight."""


@dataclass(frozen=True, slots=True)
class End:
    """What became of a request."""

    request: CompletionRequest
    fingerprint: str
    came: Completed | WorkerError


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
        self._admissions = Admissions()
        self.profile = JudgeProfile(
            name=provider.name,
            version=JUDGE_VERSION,
            grounding_threshold=method.grounding_threshold,
            models=(provider.model,),
            prompt_hashes=tuple(prompt_hashes(method.weighting, method.refinement)),
            scoring_mode=method.scoring_mode.value,
            weighting=method.weighting.value,
        )

    @property
    def unfinished(self) -> int:
        """Answers that were begun, and have neither a judgement nor a dead letter from here."""
        return len(self._admissions)

    async def judge(self, answer: Answer) -> Judgement:
        """Judge from what was paid for, and buy what is missing.

        Raises:
            RetryableError: this attempt gave no whole verdict; the next one uses again all of it that is good.
            PermanentError: refused, too large, or as many attempts as allowed gave no whole verdict.
            UnavailableError, FatalError: as the calls say.
        """
        asking = Asking(answer.key, self._admissions.of(answer.key))
        try:
            judgement = await self._judged(answer, asking)
            usage = await self._journal.usage_of(answer.key)
        except PermanentError:
            self._admissions.forget(answer.key)
            raise
        self._admissions.forget(answer.key)
        return replace(judgement, usage=usage)

    async def _judged(self, answer: Answer, asking: Asking) -> Judgement:
        tried: dict[str, set[UUID]] = defaultdict(set)
        for number in count(1):
            attempt = await self._attempt(answer, asking, tried)
            outcome = attempt.outcome
            if isinstance(outcome, Judgement):
                return outcome
            if permanent := _permanent_reason(outcome):
                raise PermanentError(permanent, outcome.detail)
            if number >= self._attempts_max * (1 + answer.replays):
                raise PermanentError(DeadLetterReason.JUDGE_INCOMPLETE, f"{outcome.detail}, in {number} attempts")
            if attempt.bought:
                raise RetryableError(outcome.detail, exhausted_reason=DeadLetterReason.JUDGE_INCOMPLETE)
            for request in map(fingerprint, outcome.ask_again):
                tried[request].add(attempt.call_ids[request])
        raise AssertionError("unreachable: the attempts end")

    async def _attempt(self, answer: Answer, asking: Asking, tried: Mapping[str, set[UUID]]) -> "Attempt":
        """One conversation to its end."""
        judging = Judging(
            answer, method=self._method, limits=self._limits, secret=self._secret, count_tokens=self._count_tokens
        )
        call_ids: dict[str, UUID] = {}
        bought = False
        while (outcome := judging.outcome) is None:
            ends = await self._all(judging.requests_to_send(), asking, tried)
            # In the order of the requests: what a conversation comes to must not hang on which reply came first.
            for end in ends:
                if isinstance(end.came, Completed):
                    judging.accept(end.request, end.came.completion)
                    call_ids[end.fingerprint] = end.came.call_id
                    bought = bought or end.came.bought
            _raise_gravest(judging, ends)
        self._telemetry.judged(scrubbed=judging.scrubbed, ignored=sum(judging.ignored.values()))
        return Attempt(outcome, bought, call_ids)

    async def _all(
        self, requests: Sequence[CompletionRequest], asking: Asking, tried: Mapping[str, set[UUID]]
    ) -> Sequence[End]:
        """What came of requests that may be asked at once.

        All in flight are waited for, also when one fails: what they cost is spent, and their responses will be used.
        Once the answer is lost, those still in line are not bought.
        """

        async def one(request: CompletionRequest) -> End:
            identity = fingerprint(request)
            try:
                completed = await self._calls.completion(
                    request, asking, tried=tried.get(identity, frozenset()), request_fingerprint=identity
                )
            except WorkerError as error:
                asking.is_lost |= isinstance(error, PermanentError | FatalError)
                return End(request, identity, error)
            asking.is_lost |= completed.completion.finish is Finish.REFUSED
            return End(request, identity, completed)

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(request)) for request in requests]
        return [task.result() for task in running]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one conversation came to; `call_ids` are the calls on record, by request, that it was held with."""

    outcome: Judgement | Incomplete
    bought: bool
    call_ids: Mapping[str, UUID]


class Admissions:
    """The order in which answers came; a half-judged one that comes again keeps its place, and so finishes first."""

    def __init__(self) -> None:
        self._numbers = count()
        self._unfinished: OrderedDict[AnswerKey, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._unfinished)

    def of(self, key: AnswerKey) -> int:
        if key not in self._unfinished:
            self._unfinished[key] = next(self._numbers)
            if len(self._unfinished) > UNFINISHED_MAX:
                # Set aside elsewhere, or gone to another worker.
                self._unfinished.popitem(last=False)
        return self._unfinished[key]

    def forget(self, key: AnswerKey) -> None:
        self._unfinished.pop(key, None)


def _raise_gravest(judging: Judging, ends: Sequence[End]) -> None:
    """Of the failed calls; unless a reply has ended the judging, which no call can change any more."""
    errors = [end.came for end in ends if isinstance(end.came, WorkerError)]
    if errors and judging.outcome is None:
        raise min(errors, key=_gravity)


def _gravity(error: WorkerError) -> int:
    """Nothing is waited for, or done again, for an answer that is lost."""
    kinds = (FatalError, PermanentError, UnavailableError, RetryableError)
    return next((rank for rank, kind in enumerate(kinds) if isinstance(error, kind)), len(kinds))


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
