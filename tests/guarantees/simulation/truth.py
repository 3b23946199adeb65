"""What is durable, whoever dies: the fakes that all workers share, watched at every write."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from tests.fakes.budgets import FakeBooks
from tests.fakes.journal import FakeCallJournal
from tests.fakes.store import FakeStore
from tests.guarantees.simulation.corpus import Produced
from tests.guarantees.simulation.loop import Process
from tests.guarantees.simulation.provider import is_usable
from tests.guarantees.simulation.schedule import DEAD_LETTERS
from tests.guarantees.simulation.world import Guarantee, World
from worker.core.model import AnswerKey, Attribution
from worker.core.outcome import Outcome
from worker.core.records import OutboundMessage, Record
from worker.llm_ports import CallIntent, CallOutcome, CallResult
from worker.ports import DeadLetter, OutboxRow, SaveResult

T = TypeVar("T")
Place = tuple[int, int]
"""Partition and offset."""


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits: what one transaction of a fake is."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a fake's transaction waits for something")


def place_of(record: Record) -> Place:
    return record.partition, record.offset


@dataclass(eq=False)
class Claim:
    """An outbox transaction in the database; it ends with its commit, or with its process."""

    process: Process
    is_given_up: bool = False
    transaction: AbstractAsyncContextManager[Sequence[OutboxRow]] | None = None


@dataclass
class Truth:
    """The database of a run."""

    world: World
    store: FakeStore = field(default_factory=lambda: FakeStore(DEAD_LETTERS))
    journal: FakeCallJournal = field(default_factory=FakeCallJournal)
    books: FakeBooks = field(default_factory=FakeBooks)
    produced: dict[Place, Produced] = field(default_factory=dict)
    saved: Counter[AnswerKey] = field(default_factory=Counter)
    saved_from: dict[Place, AnswerKey] = field(default_factory=dict)
    set_aside: Counter[Place] = field(default_factory=Counter)
    unheard_closes: set[UUID] = field(default_factory=set)
    claims: list[Claim] = field(default_factory=list)

    def has_outcome(self, record: Record) -> bool:
        """Whether the record's outcome is on record; a tombstone needs none."""
        produced = self.produced[place_of(record)]
        if produced.value is None or self.set_aside[place_of(record)]:
            return True
        settled = None if produced.answer is None else self.store.attributions.get(produced.answer.key)
        # The same key with other content is no outcome: that record must still be set aside.
        return settled is not None and produced.answer is not None and same_content(settled, produced)

    # The store

    def save(self, attribution: Attribution, message: OutboundMessage, record: Record) -> SaveResult:
        result = at_once(self.store.save(attribution, message, record))
        key = attribution.answer.key
        self.world.note(f"save.{result.value}", key.answer_id, *place_of(record))
        if result is SaveResult.SAVED:
            self.saved[key] += 1
            self.saved_from[place_of(record)] = key
            if self.saved[key] > 1:
                self.world.violate(
                    Guarantee.PERSISTED_EXACTLY_ONCE, f"{key.answer_id} is stored {self.saved[key]} times"
                )
            self._one_outcome(record)
        return result

    def save_dead_letter(self, dead_letter: DeadLetter, message: OutboundMessage) -> Outcome:
        before = len(self.store.dead_letters)
        outcome = at_once(self.store.save_dead_letter(dead_letter, message))
        record = dead_letter.record
        self.world.note(f"set_aside.{dead_letter.reason.value}", outcome.value, *place_of(record))
        if outcome is not Outcome.DEAD_LETTER:
            self.world.note("set_aside.too_late", *place_of(record))
        if len(self.store.dead_letters) > before:
            self.set_aside[place_of(record)] += 1
            self._one_outcome(record)
        return outcome

    def _one_outcome(self, record: Record) -> None:
        place = place_of(record)
        outcomes = self.set_aside[place] + (place in self.saved_from)
        if outcomes > 1:
            self.world.violate(Guarantee.EVERY_EVENT_TERMINAL, f"record {place} has {outcomes} outcomes")

    # The journal

    def open(self, intent: CallIntent) -> float | None:
        self._at_database_time()
        held_s = at_once(self.journal.open(intent))
        self.world.note("call.intended", intent.answer_key.answer_id, intent.stage.value, held_s)
        if held_s is None:
            usable = [row for row in self.responses_to(intent.call_key) if is_usable(row.raw)]
            if usable:
                self.world.violate(
                    Guarantee.COST_CONSERVED, f"{intent.answer_key.answer_id}: a paid response is bought again"
                )
        return held_s

    def close(self, call_id: UUID, result: CallResult) -> None:
        self._at_database_time()
        row = self.journal.rows.get(call_id)
        before = None if row is None else row.outcome
        at_once(self.journal.close(call_id, result))
        late = before is CallOutcome.UNKNOWN and result.outcome is CallOutcome.COMPLETE
        self.world.note("call.closed_late" if late else "call.closed", result.outcome.value)

    def responses_to(self, call_key: bytes) -> Sequence[Any]:
        self._at_database_time()
        return at_once(self.journal.responses(call_key))

    def sweep(self) -> int:
        self._at_database_time()
        return at_once(self.journal.sweep())

    def _at_database_time(self) -> None:
        self.journal.now_s = asyncio.get_running_loop().time()

    # The outbox

    def claim(self, claim: Claim, rows_max: int) -> Sequence[OutboxRow]:
        if claim.is_given_up or claim.process.was_killed:
            return []
        claim.transaction = self.store.claim(rows_max)
        self.claims.append(claim)
        return at_once(claim.transaction.__aenter__())

    def commit(self, claim: Claim) -> None:
        if claim.transaction is not None and not claim.is_given_up:
            self._end(claim, None)

    def give_up(self, claim: Claim) -> None:
        """The client is gone, or told us so: its rows are free again."""
        if not claim.is_given_up:
            claim.is_given_up = True
            if claim in self.claims:
                self._end(claim, ConnectionResetError())

    def give_up_claims_of(self, process: Process) -> None:
        for claim in [claim for claim in self.claims if claim.process is process]:
            self.give_up(claim)

    def _end(self, claim: Claim, error: Exception | None) -> None:
        self.claims.remove(claim)
        assert claim.transaction is not None
        ending = claim.transaction.__aexit__(None if error is None else type(error), error, None)
        try:
            at_once(ending)
        except ConnectionResetError:
            return


def same_content(settled: Attribution, produced: Produced) -> bool:
    answer = produced.answer
    assert answer is not None
    return (settled.answer.text, settled.answer.sources) == (answer.text, answer.sources)
