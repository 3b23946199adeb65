from collections.abc import Callable

import pytest

from schemas.dead_letter import DeadLetterReason
from tests.support import samples
from worker.core.model import AnswerIdentity
from worker.core.outcome import Outcome, Processed
from worker.core.records import OutboundMessage, Record
from worker.core.retry import RetryPolicy
from worker.errors import FatalError, PermanentError, RetryableError, UnavailableError
from worker.ports import DeadLetter
from worker.settle import Outages, Settle
from worker.telemetry import Telemetry

RECORD = samples.record()


class Line:
    """A processing line that does each scripted thing in turn, then settles as attributed."""

    def __init__(self, script: list[Exception]) -> None:
        self.script = list(script)
        self.runs = 0

    async def __call__(self, record: Record) -> Processed:
        self.runs += 1
        if self.script:
            raise self.script.pop(0)
        return Processed(Outcome.ATTRIBUTED)


class Letters:
    """Dead letters kept in a list, after failing with each of `failures` in turn."""

    def __init__(self, failures: list[Exception] | None = None) -> None:
        self.failures = list(failures or [])
        self.settled_meanwhile = False
        self.kept: list[tuple[DeadLetter, OutboundMessage]] = []

    async def save_dead_letter(self, dead_letter: DeadLetter, message: OutboundMessage) -> Outcome:
        if self.failures:
            raise self.failures.pop(0)
        if self.settled_meanwhile:
            return Outcome.DUPLICATE
        self.kept.append((dead_letter, message))
        return Outcome.DEAD_LETTER


class Bench:
    """A settle with everything around it in sight."""

    def __init__(
        self,
        script: list[Exception],
        letters: Letters | None = None,
        *,
        during_sleep: Callable[[], None] = lambda: None,
    ) -> None:
        self.line = Line(script)
        self.letters = letters or Letters()
        self.outages = Outages()
        self.pauses_s: list[float] = []
        self.open_during_pauses: list[bool] = []
        self.wakes = 0
        self.telemetry = Telemetry()
        self.settle = Settle(
            process=self.line,
            dead_letters=self.letters,
            encode_dead_letter=lambda letter: OutboundMessage("dlq", letter.record.key, letter.record.value),
            identify=lambda _: AnswerIdentity(samples.answer().key),
            on_stored=self.wake,
            policy=RetryPolicy(attempts_max=3, backoff_base_s=1.0, backoff_max_s=8.0, outage_backoff_max_s=4.0),
            outages=self.outages,
            telemetry=self.telemetry,
            sleep=self.sleep,
            monotonic=lambda: 0.0,
            jitter=lambda: 0.5,
        )

    def wake(self) -> None:
        self.wakes += 1

    async def sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        self.open_during_pauses.append(self.outages.none_open())


async def test_a_record_that_processes_is_settled_at_once() -> None:
    bench = Bench([])
    assert await bench.settle(RECORD) is Outcome.ATTRIBUTED
    assert (bench.line.runs, bench.pauses_s, bench.letters.kept) == (1, [], [])


async def test_a_permanent_fault_is_set_aside_with_its_reason_and_its_bytes() -> None:
    bench = Bench([PermanentError(DeadLetterReason.INVALID_EVENT, "sources: missing")])
    assert await bench.settle(RECORD) is Outcome.DEAD_LETTER
    [(letter, message)] = bench.letters.kept
    assert (letter.reason, letter.detail, letter.attempts) == (DeadLetterReason.INVALID_EVENT, "sources: missing", 1)
    assert (message.value, letter.record, letter.identity.key) == (RECORD.value, RECORD, samples.answer().key)
    assert bench.wakes == 1


async def test_a_record_given_up_after_another_worker_settled_its_answer_is_a_duplicate() -> None:
    letters = Letters()
    letters.settled_meanwhile = True
    bench = Bench([PermanentError(DeadLetterReason.JUDGE_REFUSED, "refused")], letters)
    assert await bench.settle(RECORD) is Outcome.DUPLICATE
    assert bench.wakes == 0, "nothing was stored"
    assert bench.telemetry.outcomes == {Outcome.DUPLICATE: 1}


async def test_own_faults_use_up_attempts_and_then_become_a_dead_letter() -> None:
    bench = Bench([RetryableError("bad verdict", exhausted_reason=DeadLetterReason.JUDGE_INCOMPLETE)] * 3)
    assert await bench.settle(RECORD) is Outcome.DEAD_LETTER
    [(letter, _)] = bench.letters.kept
    assert (letter.reason, letter.attempts, bench.line.runs) == (DeadLetterReason.JUDGE_INCOMPLETE, 3, 3)
    assert bench.pauses_s == [0.75, 1.5]
    assert bench.open_during_pauses == [True, True], "one record's own fault must not stop the others"


async def test_an_outage_uses_up_nothing_however_long() -> None:
    bench = Bench([UnavailableError("database down")] * 1_000)
    assert await bench.settle(RECORD) is Outcome.ATTRIBUTED
    assert bench.letters.kept == []
    assert not any(bench.open_during_pauses), "intake stays closed while a record waits"
    assert bench.outages.none_open()
    assert max(bench.pauses_s) <= 4.0


async def test_outages_between_own_faults_do_not_count_as_attempts() -> None:
    down, faulty = UnavailableError("down"), RetryableError("bad verdict")
    bench = Bench([down, faulty, down, down, faulty, down])
    assert await bench.settle(RECORD) is Outcome.ATTRIBUTED


async def test_a_dead_letter_waits_for_the_database_without_running_the_record_again() -> None:
    letters = Letters([UnavailableError("database down")] * 3)
    bench = Bench([PermanentError(DeadLetterReason.NOT_JSON, "no JSON")], letters)
    assert await bench.settle(RECORD) is Outcome.DEAD_LETTER
    assert (bench.line.runs, len(letters.kept)) == (1, 1)


@pytest.mark.parametrize("error", [FatalError("limits passed"), RuntimeError("a bug")])
async def test_fatal_errors_and_bugs_leave_the_record_unsettled(error: Exception) -> None:
    bench = Bench([error])
    with pytest.raises(type(error)):
        await bench.settle(RECORD)
    assert bench.letters.kept == []


async def test_passed_dead_letter_limits_stop_the_worker() -> None:
    bench = Bench([PermanentError(DeadLetterReason.NOT_JSON, "no JSON")], Letters([FatalError("limits passed")]))
    with pytest.raises(FatalError, match="limits passed"):
        await bench.settle(RECORD)
    assert bench.wakes == 0


async def test_a_cancelled_wait_reopens_intake() -> None:
    bench = Bench([UnavailableError("down")])

    async def interrupted(_: float) -> None:
        raise InterruptedError

    bench.settle._sleep = interrupted
    with pytest.raises(InterruptedError):
        await bench.settle(RECORD)
    assert bench.outages.none_open()
