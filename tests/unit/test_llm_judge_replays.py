"""A replay from the dead letters opens a new budget of attempts, counted over what the journal holds."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

import pytest

from schemas.dead_letter import DeadLetterReason
from tests.fakes.journal import FakeCallJournal
from tests.fakes.language_model import completion
from tests.support import samples
from tests.support.llm import LIMITS, SECRET
from worker.calls import Asking, Completed
from worker.core.asking import JudgingMethod, fingerprint
from worker.core.llm import CompletionRequest
from worker.core.model import Answer
from worker.errors import PermanentError, RetryableError
from worker.llm_judge import LlmJudge
from worker.telemetry import Telemetry

ATTEMPTS_MAX = 3
UNREADABLE = completion("I would rather not say it in JSON.")


@dataclass(frozen=True)
class FakeProvider:
    name: str = "fake"
    model: str = "broken"


@dataclass
class CallsOfABrokenModel:
    """No reply can be read; those on record are given again before another is bought."""

    on_record: dict[str, list[UUID]] = field(default_factory=dict)

    @property
    def attempts(self) -> int:
        """How often the request that fails was bought; the one before it is good for one repair, and is bought once."""
        return max(map(len, self.on_record.values()))

    async def completion(
        self, request: CompletionRequest, asking: Asking, *, tried: Collection[UUID], request_fingerprint: str
    ) -> Completed:
        assert request_fingerprint == fingerprint(request)
        known = self.on_record.setdefault(request_fingerprint, [])
        for call_id in known:
            if call_id not in tried:
                return Completed(UNREADABLE, call_id, bought=False)
        known.append(uuid4())
        return Completed(UNREADABLE, known[-1], bought=True)


async def deliver_until_set_aside(calls: CallsOfABrokenModel, answer: Answer) -> DeadLetterReason:
    """The record comes again and again, each time to a worker that has just started."""
    for _ in range(100):
        judge = LlmJudge(
            provider=FakeProvider(),  # type: ignore[arg-type]  # only its name and model are read
            calls=calls,  # type: ignore[arg-type]  # the one method that is called
            journal=FakeCallJournal(),
            method=JudgingMethod(),
            limits=LIMITS,
            secret=SECRET,
            attempts_max=ATTEMPTS_MAX,
            count_tokens=len,
            telemetry=Telemetry(),
        )
        try:
            await judge.judge(answer)
        except RetryableError:
            continue
        except PermanentError as error:
            return error.reason
    raise AssertionError("the attempts did not end")


@pytest.mark.parametrize("replays", [0, 1, 2])
async def test_each_replay_buys_as_many_attempts_again_and_no_more(replays: int) -> None:
    calls = CallsOfABrokenModel()
    for replay in range(replays + 1):
        answer = replace(samples.answer(), replays=replay)
        assert await deliver_until_set_aside(calls, answer) is DeadLetterReason.JUDGE_INCOMPLETE
        assert calls.attempts == ATTEMPTS_MAX * (replay + 1)


async def test_a_redelivery_alone_buys_nothing() -> None:
    calls = CallsOfABrokenModel()
    for _ in range(3):
        await deliver_until_set_aside(calls, samples.answer())
    assert calls.attempts == ATTEMPTS_MAX
