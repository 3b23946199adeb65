"""One record through its five steps, and what a crash at each of them leaves behind."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import pytest

from schemas.dead_letter import DeadLetterReason
from tests.fakes.judge import FakeJudge, full_support
from tests.fakes.store import FakeStore
from tests.support import samples
from tests.support.attributions import attribution_of, message_of
from worker.core.model import Answer, AnswerKey, Attribution, Judgement
from worker.core.outcome import Outcome, Processed
from worker.core.records import OutboundMessage, Record
from worker.errors import PermanentError, RetryableError, UnavailableError
from worker.ports import DeadLetter, SaveResult, SetAside, SettledAnswer
from worker.process import Process
from worker.telemetry import Telemetry

ANSWER = samples.answer()
RECORD = samples.record_of(ANSWER)


class CrashError(BaseException):
    """The process ends here; nothing after it happens."""


@dataclass
class Line:
    """A process on fakes, with what passed through it."""

    store: FakeStore = field(default_factory=FakeStore)
    judge: FakeJudge = field(default_factory=FakeJudge)
    answers: dict[Record, Answer] = field(default_factory=lambda: {RECORD: ANSWER})
    steps: list[str] = field(default_factory=list)
    crash_at: str | None = None
    wakes: int = 0

    async def __call__(self, record: Record = RECORD) -> Processed:
        process = Process(
            decode=self._decode,
            store=_Watched(self),
            judge=self._judge,
            attribute=self._attribute,
            encode=self._encode,
            on_stored=self._stored,
            telemetry=Telemetry(),
        )
        return await process(record)

    async def until_crash(self, step: str) -> None:
        self.crash_at = step
        with pytest.raises(CrashError):
            await self()
        self.crash_at = None
        self.steps.clear()

    def reach(self, step: str) -> None:
        self.steps.append(step)
        if step == self.crash_at:
            raise CrashError(step)

    def _decode(self, record: Record) -> Answer:
        self.reach("decode")
        return self.answers[record]

    async def _judge(self, answer: Answer) -> Judgement:
        self.reach("judge")
        return await self.judge.judge(answer)

    def _attribute(self, answer: Answer, judgement: Judgement) -> Attribution:
        self.reach("credit")
        return attribution_of(answer, judgement)

    def _encode(self, attribution: Attribution) -> OutboundMessage:
        self.reach("encode")
        return message_of(attribution)

    def _stored(self) -> None:
        self.reach("stored")
        self.wakes += 1


@dataclass
class _Watched:
    """The line's store, at which its crashes can be had."""

    line: Line

    async def find(self, key: AnswerKey, record: Record) -> SettledAnswer | SetAside | None:
        self.line.reach("find")
        return await self.line.store.find(key, record)

    async def save(
        self, attribution: Attribution, message: OutboundMessage, record: Record | None = None
    ) -> SaveResult:
        self.line.reach("save")
        result = await self.line.store.save(attribution, message, record)
        self.line.reach("commit")
        return result


async def test_an_event_becomes_an_attribution_by_the_steps_in_their_order() -> None:
    line = Line()
    processed = await line()
    assert processed.outcome is Outcome.ATTRIBUTED
    assert processed.answer_key == ANSWER.key
    assert processed.attribution is line.store.attributions[ANSWER.key]
    assert line.steps == ["decode", "find", "judge", "credit", "encode", "save", "commit", "stored"]
    assert [row.message for row in line.store.outbox] == [message_of(line.store.attributions[ANSWER.key])]


async def test_the_relay_is_woken_once_something_is_stored_and_only_then() -> None:
    line = Line()
    await line()
    assert line.wakes == 1
    await line()
    assert line.wakes == 1


async def test_a_tombstone_is_skipped_before_anything_is_read_of_it() -> None:
    line = Line()
    assert await line(samples.record(None)) == Processed(Outcome.SKIPPED)
    assert line.steps == []


async def test_an_empty_value_is_no_tombstone() -> None:
    # confluent-kafka-python PR#340: a message of length 0 is false
    empty = samples.record(b"")
    line = Line(answers={empty: ANSWER})
    assert (await line(empty)).outcome is Outcome.ATTRIBUTED


async def test_a_redelivered_event_is_a_duplicate_and_is_not_judged_again() -> None:
    line = Line()
    await line()
    line.steps.clear()
    assert await line() == Processed(Outcome.DUPLICATE, ANSWER.key)
    assert line.steps == ["decode", "find"]
    assert len(line.judge.judged) == 1


async def test_other_content_under_the_same_answer_id_is_a_conflict_and_is_not_judged() -> None:
    line = Line()
    await line()
    line.answers[RECORD] = replace(ANSWER, content_hash=b"other")
    with pytest.raises(PermanentError) as refused:
        await line()
    assert refused.value.reason is DeadLetterReason.CONFLICTING_CONTENT
    assert len(line.judge.judged) == 1
    assert len(line.store.attributions) == 1


async def while_judging(line: Line, settle: Callable[[], Awaitable[object]]) -> Processed:
    """Another worker settles something after this one has looked, and before it saves."""

    class Slow(FakeJudge):
        async def judge(self, answer: Answer) -> Judgement:
            await settle()
            return await super().judge(answer)

    line.judge = Slow()
    return await line()


async def test_an_answer_that_another_worker_settled_meanwhile_is_a_duplicate() -> None:
    line = Line()
    theirs = attribution_of(ANSWER)
    processed = await while_judging(line, lambda: line.store.save(theirs, message_of(theirs)))
    assert processed == Processed(Outcome.DUPLICATE, ANSWER.key)
    assert line.store.attributions[ANSWER.key] is theirs
    assert len(line.store.outbox) == 1
    assert line.wakes == 0


async def test_other_content_that_another_worker_settled_meanwhile_is_a_conflict() -> None:
    line = Line()
    theirs = attribution_of(replace(ANSWER, content_hash=b"other"))
    with pytest.raises(PermanentError) as refused:
        await while_judging(line, lambda: line.store.save(theirs, message_of(theirs)))
    assert refused.value.reason is DeadLetterReason.CONFLICTING_CONTENT
    assert line.store.attributions[ANSWER.key] is theirs


async def test_a_record_set_aside_before_its_offset_was_committed_stays_set_aside() -> None:
    line = Line()
    line.store.dead_letters.append(DeadLetter(RECORD, DeadLetterReason.ATTEMPTS_EXHAUSTED, "five tries", 5))
    assert await line() == Processed(Outcome.DEAD_LETTER, ANSWER.key)
    assert line.judge.judged == []
    assert line.store.attributions == {}


async def test_a_record_that_another_worker_set_aside_meanwhile_stays_set_aside() -> None:
    line = Line()
    letter = DeadLetter(RECORD, DeadLetterReason.ATTEMPTS_EXHAUSTED, "five tries", 5)

    async def given_up() -> None:
        line.store.dead_letters.append(letter)

    assert await while_judging(line, given_up) == Processed(Outcome.DEAD_LETTER, ANSWER.key)
    assert line.store.attributions == {}
    assert line.wakes == 0


@pytest.mark.parametrize(
    ("answer", "judgement", "outcome"),
    [
        (ANSWER, samples.judgement(), Outcome.ATTRIBUTED),
        (ANSWER, samples.judgement([[0, 0, 0]]), Outcome.UNGROUNDED),
        (ANSWER, samples.judgement([]), Outcome.NO_KEY_POINTS),
        (samples.answer(source_count=0), samples.judgement([]), Outcome.NO_SOURCES),
    ],
)
async def test_every_status_is_stored_and_told(answer: Answer, judgement: Judgement, outcome: Outcome) -> None:
    line = Line(judge=FakeJudge(lambda _: judgement), answers={RECORD: answer})
    assert (await line()).outcome is outcome
    assert line.store.attributions[answer.key].status.value == outcome.value
    assert len(line.store.outbox) == 1


@pytest.mark.parametrize("step", ["decode", "find", "judge", "credit", "encode", "save"])
async def test_a_crash_before_the_commit_leaves_nothing_and_the_redelivery_does_it_all(step: str) -> None:
    line = Line()
    await line.until_crash(step)
    assert (line.store.attributions, line.store.outbox) == ({}, [])

    assert (await line()).outcome is Outcome.ATTRIBUTED
    assert len(line.store.attributions) == len(line.store.outbox) == 1


@pytest.mark.parametrize("step", ["commit", "stored"])
async def test_a_crash_after_the_commit_leaves_it_all_and_the_redelivery_ends_as_a_duplicate(step: str) -> None:
    line = Line()
    await line.until_crash(step)
    assert len(line.store.attributions) == len(line.store.outbox) == 1

    assert (await line()).outcome is Outcome.DUPLICATE
    assert line.steps == ["decode", "find"]
    assert len(line.store.outbox) == 1


@pytest.mark.parametrize(
    "failure", [RetryableError("no verdict"), UnavailableError("judge down"), RuntimeError("a bug")], ids=repr
)
async def test_a_failed_judgement_is_the_callers_affair_and_stores_nothing(failure: Exception) -> None:
    line = Line(judge=FakeJudge(failures=[failure]))
    with pytest.raises(type(failure)):
        await line()
    assert (line.store.attributions, line.store.outbox, line.wakes) == ({}, [], 0)
    assert (await line()).outcome is Outcome.ATTRIBUTED


async def test_a_judgement_is_not_credited_when_it_is_no_judgement_of_the_answer() -> None:
    other = samples.answer(source_count=7)
    line = Line(judge=FakeJudge(lambda _: full_support(other)))
    with pytest.raises(ValueError, match="sources"):
        await line()
    assert line.store.attributions == {}


async def test_with_the_database_down_nothing_is_judged() -> None:
    line = Line()
    line.store.down = True
    with pytest.raises(UnavailableError):
        await line()
    assert line.judge.judged == []
