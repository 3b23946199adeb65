"""Workers broken on purpose, each in one way that once was somebody's bug: the simulation must find every one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from tests.fakes.budgets import FakeBooks
from tests.fakes.store import FakeStore
from tests.guarantees.simulation.truth import Claim
from tests.guarantees.simulation.worker import SimulatedWorker
from tests.guarantees.simulation.world import Guarantee
from worker.core.charging import ChargingRule, Dimension, Estimate, Reservation
from worker.core.llm import CompletionUsage
from worker.core.model import AnswerIdentity, Attribution
from worker.core.offsets import OffsetTracker, PartitionOffsets
from worker.core.outcome import Processed
from worker.core.records import OutboundMessage, Record, TopicPartition
from worker.errors import RetryableError, UnavailableError
from worker.limiter import Slot
from worker.llm_ports import INTENT_LIFE_S_MAX, CallIntent, CallOutcome, CallResult, JournaledCall
from worker.ports import DeadLetter, OutboxRow, SaveResult

# Offsets


class HighestCompleted(PartitionOffsets):
    def complete(self, offset: int) -> None:
        super().complete(offset)
        if self._completed is not None:
            self._committable = self._completed + 1


class CompletedWhenFetched(PartitionOffsets):
    def add(self, offset: int, now_s: float) -> bool:
        is_new = super().add(offset, now_s)
        self.complete(offset)
        return is_new


class BrokenTracker(OffsetTracker):
    def __init__(self, partition_class: type[PartitionOffsets]) -> None:
        super().__init__()
        self._partition_class = partition_class

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        super().assign(partitions)
        for topic_partition in partitions:
            self._partitions[topic_partition] = self._partition_class(self._epoch)


class NeverFenced(OffsetTracker):
    """What was tracked before a revoke is still committed after it."""

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        super().assign([partition for partition in partitions if partition not in self._partitions])

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        pass


def _track(worker: SimulatedWorker, tracker: OffsetTracker) -> None:
    worker.consume._offsets = tracker
    worker.consume._commits._offsets = tracker


def commit_highest_completed(worker: SimulatedWorker) -> None:
    _track(worker, BrokenTracker(HighestCompleted))


def commit_what_was_fetched(worker: SimulatedWorker) -> None:
    _track(worker, BrokenTracker(CompletedWhenFetched))


def commit_after_the_fence(worker: SimulatedWorker) -> None:
    _track(worker, NeverFenced())


def count_cancelled_records_as_settled(worker: SimulatedWorker) -> None:
    settle = worker.consume._settle

    async def swallowing(record: Record) -> object:
        try:
            return await settle(record)
        except asyncio.CancelledError:
            return None

    worker.consume._settle = swallowing


def stop_polling_while_intake_is_closed(worker: SimulatedWorker) -> None:
    async def nothing() -> Sequence[Record]:
        await asyncio.sleep(1)
        return []

    worker.consume._reader.poll_paused = nothing  # type: ignore[method-assign]


# Attempts


def use_up_attempts_in_outages(worker: SimulatedWorker) -> None:
    process: Callable[[Record], Awaitable[Processed]] = worker.record

    async def impatient(record: Record) -> Processed:
        try:
            return await process(record)
        except UnavailableError as error:
            raise RetryableError(str(error)) from error

    worker.settle._process = impatient


# The store


def _store(worker: SimulatedWorker) -> FakeStore:
    return worker.servers.truth.store


def store_without_uniqueness(worker: SimulatedWorker) -> None:
    class Overwriting(FakeStore):
        async def save(
            self, attribution: Attribution, message: OutboundMessage, record: Record | None = None
        ) -> SaveResult:
            self.attributions.pop(attribution.answer.key, None)
            return await super().save(attribution, message, record)

    _store(worker).__class__ = Overwriting


def save_without_a_look_at_dead_letters(worker: SimulatedWorker) -> None:
    class Blind(FakeStore):
        async def save(
            self, attribution: Attribution, message: OutboundMessage, record: Record | None = None
        ) -> SaveResult:
            return await super().save(attribution, message, None)

    _store(worker).__class__ = Blind


def set_aside_without_a_look_at_answers(worker: SimulatedWorker) -> None:
    class Blind(FakeStore):
        async def save_dead_letter(self, dead_letter: DeadLetter, message: OutboundMessage) -> Any:
            return await super().save_dead_letter(replace(dead_letter, identity=AnswerIdentity()), message)

    _store(worker).__class__ = Blind


def forget_who_was_set_aside(worker: SimulatedWorker) -> None:
    class Forgetful(FakeStore):
        def _is_set_aside(self, record: Record) -> bool:
            return False

    _store(worker).__class__ = Forgetful


def announce_in_a_second_transaction(worker: SimulatedWorker) -> None:
    world, database, truth = worker.servers.world, worker.servers.database, worker.servers.truth

    def save_alone(attribution: Attribution, message: OutboundMessage, record: Record) -> SaveResult:
        result = truth.save(attribution, message, record)
        if result is SaveResult.SAVED:
            truth.store.outbox.pop()
        return result

    async def save(attribution: Attribution, message: OutboundMessage, record: Record | None = None) -> SaveResult:
        assert record is not None
        result = await world.ask(database, lambda: save_alone(attribution, message, record))
        if result is SaveResult.SAVED:
            await world.ask(database, lambda: truth.store._announce(message))
        return result

    worker.store.save = save  # type: ignore[method-assign]


def delete_before_publishing(worker: SimulatedWorker) -> None:
    world, database, truth = worker.servers.world, worker.servers.database, worker.servers.truth

    @asynccontextmanager
    async def claim(rows_max: int) -> AsyncIterator[Sequence[OutboxRow]]:
        mine = Claim(worker.process)

        def take() -> Sequence[OutboxRow]:
            rows = truth.claim(mine, rows_max)
            truth.commit(mine)
            return rows

        yield await world.ask(database, take)

    worker.store.claim = claim  # type: ignore[method-assign]


def lose_headers_of_dead_letters(worker: SimulatedWorker) -> None:
    encode = worker.settle._encode_dead_letter
    worker.settle._encode_dead_letter = lambda letter: encode(
        replace(letter, record=replace(letter.record, headers=()))
    )


# Credit


def store_shares_a_unit_short(worker: SimulatedWorker) -> None:
    class Losing(FakeStore):
        async def save(
            self, attribution: Attribution, message: OutboundMessage, record: Record | None = None
        ) -> SaveResult:
            credits_ = [replace(c, share_units=max(0, c.share_units - 1)) for c in attribution.source_credits]
            return await super().save(replace(attribution, source_credits=tuple(credits_)), message, record)

    _store(worker).__class__ = Losing


# The journal, the money and the limits


def never_look_into_the_journal(worker: SimulatedWorker) -> None:
    journal_open = worker.journal.open

    async def nothing(call_key: bytes) -> Sequence[JournaledCall]:
        return []

    async def open_anyway(intent: CallIntent) -> float | None:
        return await journal_open(replace(intent, responses_known=None))

    worker.journal.responses = nothing  # type: ignore[method-assign]
    worker.journal.open = open_anyway  # type: ignore[method-assign]


def record_calls_when_they_have_ended(worker: SimulatedWorker) -> None:
    intents: dict[UUID, CallIntent] = {}
    journal_open, journal_close = worker.journal.open, worker.journal.close

    async def remember(intent: CallIntent) -> float | None:
        intents[intent.call_id] = intent
        return None

    async def close(call_id: UUID, result: CallResult) -> None:
        await journal_open(replace(intents[call_id], responses_known=None))
        await journal_close(call_id, result)

    worker.journal.open = remember  # type: ignore[method-assign]
    worker.journal.close = close  # type: ignore[method-assign]


def count_lost_calls_as_free(worker: SimulatedWorker) -> None:
    journal_close = worker.journal.close

    async def close(call_id: UUID, result: CallResult) -> None:
        if result.outcome is CallOutcome.UNKNOWN:
            result = replace(result, outcome=CallOutcome.FAILED)
        await journal_close(call_id, result)

    worker.journal.close = close  # type: ignore[method-assign]


def wait_for_ever_for_the_dead(worker: SimulatedWorker) -> None:
    journal_open = worker.journal.open

    async def open_for_a_day(intent: CallIntent) -> float | None:
        return await journal_open(replace(intent, lives_s=INTENT_LIFE_S_MAX))

    worker.journal.open = open_for_a_day  # type: ignore[method-assign]


class CountsNothing(ChargingRule):
    def reserve(self, estimate: Estimate) -> Mapping[Dimension, Reservation]:
        return dict.fromkeys(Dimension, Reservation(0, 0))

    def used(self, usage: CompletionUsage) -> Mapping[Dimension, int]:
        return dict.fromkeys(Dimension, 0)


def count_nothing(worker: SimulatedWorker) -> None:
    rule = worker.limiter._rule
    broken = CountsNothing(rule.charge, cache_reads_charged=rule.cache_reads_charged)
    worker.limiter._rule = worker.limiter._account._rule = broken


def leave_no_slot(worker: SimulatedWorker) -> None:
    class Kept(Slot):
        def leave(self) -> None:
            if self._settled:
                super().leave()

    granting = worker.limiter._grant

    def grant(waiter: Any) -> None:
        granting(waiter)
        waiter.granted.result().__class__ = Kept

    worker.limiter._grant = grant  # type: ignore[method-assign]


def keep_books_alone(worker: SimulatedWorker) -> None:
    worker.budgets._own.books = FakeBooks()


@dataclass(frozen=True)
class Mutation:
    """One way to be wrong, and what it must be found to break."""

    break_worker: Callable[[SimulatedWorker], None]
    breaks: frozenset[Guarantee]


def _breaking(break_worker: Callable[[SimulatedWorker], None], *guarantees: Guarantee) -> Mutation:
    return Mutation(break_worker, frozenset(guarantees))


MUTATIONS = {
    "parallel-consumer#826: commits the highest completed offset": _breaking(
        commit_highest_completed, Guarantee.NEVER_COMMITTED_PAST_UNFINISHED
    ),
    "parallel-consumer#827: commits what was fetched": _breaking(
        commit_what_was_fetched, Guarantee.NEVER_COMMITTED_PAST_UNFINISHED
    ),
    "zio-kafka#590: commits after its partitions were given up": _breaking(
        commit_after_the_fence,
        Guarantee.COMMITS_NEVER_MOVE_BACK,
        Guarantee.NEVER_COMMITTED_PAST_UNFINISHED,
        Guarantee.NOTHING_HANGS,
    ),
    "a record cancelled by the drain counts as settled": _breaking(
        count_cancelled_records_as_settled, Guarantee.NEVER_COMMITTED_PAST_UNFINISHED
    ),
    "aiokafka#848: does not poll while intake is closed": _breaking(
        stop_polling_while_intake_is_closed, Guarantee.STAYS_A_MEMBER
    ),
    "an outage uses up attempts": _breaking(use_up_attempts_in_outages, Guarantee.EVERY_EVENT_TERMINAL),
    "openmeter#4902: the store is not unique": _breaking(store_without_uniqueness, Guarantee.PERSISTED_EXACTLY_ONCE),
    "a save does not see that its record was set aside": _breaking(
        save_without_a_look_at_dead_letters, Guarantee.EVERY_EVENT_TERMINAL
    ),
    "a dead letter does not see that its answer was settled": _breaking(
        set_aside_without_a_look_at_answers, Guarantee.EVERY_EVENT_TERMINAL
    ),
    "who was set aside is forgotten": _breaking(forget_who_was_set_aside, Guarantee.EVERY_EVENT_TERMINAL),
    "the announcement has a transaction of its own": _breaking(
        announce_in_a_second_transaction, Guarantee.OUTBOX_DELIVERED
    ),
    "litellm#34887: the outbox is emptied before it is published": _breaking(
        delete_before_publishing, Guarantee.OUTBOX_DELIVERED, Guarantee.DEAD_LETTERS_INTACT
    ),
    "dead letters lose their headers": _breaking(lose_headers_of_dead_letters, Guarantee.DEAD_LETTERS_INTACT),
    "a unit of each share is lost to rounding": _breaking(store_shares_a_unit_short, Guarantee.CREDIT_CONSERVED),
    "the journal is written and never read": _breaking(never_look_into_the_journal, Guarantee.COST_CONSERVED),
    "a call is recorded when it has ended": _breaking(record_calls_when_they_have_ended, Guarantee.COST_CONSERVED),
    "a lost response counts as free": _breaking(count_lost_calls_as_free, Guarantee.COST_CONSERVED),
    "faust#458: a dead worker's intent is waited for without end": _breaking(
        wait_for_ever_for_the_dead, Guarantee.NOTHING_HANGS
    ),
    "limits are checked, and nothing counts against them": _breaking(
        count_nothing, Guarantee.LIMITER_KEEPS_THE_ACCOUNT
    ),
    "a failed call keeps its slot": _breaking(leave_no_slot, Guarantee.NOTHING_LEFT, Guarantee.NOTHING_HANGS),
    "each worker has the whole budget": _breaking(keep_books_alone, Guarantee.BUDGETS_KEPT),
}
