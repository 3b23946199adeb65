"""The offset tracker against a naive model, through every order of events that a consumer group can bring about."""

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from worker.core.offsets import Committable, OffsetTracker, Ticket
from worker.core.records import TopicPartition

PARTITIONS = [TopicPartition("answers", number) for number in range(3)]


@dataclass
class NaiveAssignment:
    """All that was fetched, in fetched order, each with whether it is finished."""

    finished: dict[int, bool] = field(default_factory=dict)
    committed: int | None = None

    def committable(self) -> int | None:
        prefix = None
        for offset in self.finished:
            if not self.finished[offset]:
                break
            prefix = offset + 1
        return prefix


class OffsetsMachine(RuleBasedStateMachine):
    tickets: Bundle[Ticket] = Bundle("tickets")

    def __init__(self) -> None:
        super().__init__()
        self.tracker = OffsetTracker()
        self.model: dict[TopicPartition, NaiveAssignment] = {}
        self.owned: dict[Ticket, NaiveAssignment] = {}
        # The broker's side: where each partition's log continues, and what the group has committed.
        self.log_ends = dict.fromkeys(PARTITIONS, 0)
        self.group_committed = dict.fromkeys(PARTITIONS, 0)
        self.ever_finished: dict[TopicPartition, set[int]] = {partition: set() for partition in PARTITIONS}
        self.ever_fetched: dict[TopicPartition, set[int]] = {partition: set() for partition in PARTITIONS}
        self.on_its_way: list[list[Committable]] = []

    @rule(partition=st.sampled_from(PARTITIONS))
    def assign_or_reassign_to_self(self, partition: TopicPartition) -> None:
        self.tracker.assign([partition])
        self.model[partition] = NaiveAssignment()
        self.log_ends[partition] = self.group_committed[partition]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.model)))
        self.tracker.revoke([partition])
        del self.model[partition]

    @precondition(lambda self: self.model)
    @rule(target=tickets, data=st.data(), gap=st.sampled_from([0, 0, 0, 1, 7]))
    def add(self, data: st.DataObject, gap: int) -> Ticket:
        partition = data.draw(st.sampled_from(sorted(self.model)))
        offset = self.log_ends[partition] + gap
        ticket = self.tracker.add(partition, offset, now_s=float(offset))
        assert ticket is not None
        self.log_ends[partition] = offset + 1
        self.model[partition].finished[offset] = False
        self.owned[ticket] = self.model[partition]
        self.ever_fetched[partition].add(offset)
        return ticket

    @rule(ticket=tickets)
    def complete_perhaps_again_perhaps_stale(self, ticket: Ticket) -> None:
        self.tracker.complete(ticket)
        self.owned[ticket].finished[ticket.offset] = True
        self.ever_finished[ticket.topic_partition].add(ticket.offset)

    @rule(ticket=tickets)
    def fail(self, ticket: Ticket) -> None:
        """A record without an outcome tells the tracker nothing."""

    @precondition(lambda self: any(assignment.finished for assignment in self.model.values()))
    @rule(data=st.data())
    def deliver_again(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(p for p, assignment in self.model.items() if assignment.finished)))
        offset = data.draw(st.sampled_from(sorted(self.model[partition].finished)))
        assert self.tracker.add(partition, offset, now_s=0.0) is None

    @rule()
    def send_a_commit(self) -> None:
        self.on_its_way.append(self.tracker.committable())

    @precondition(lambda self: self.on_its_way)
    @rule(data=st.data())
    def a_commit_arrives(self, data: st.DataObject) -> None:
        sent = self.on_its_way.pop(data.draw(st.integers(0, len(self.on_its_way) - 1)))
        self.tracker.mark_committed(sent)
        for partition, epoch, offset in sent:
            if partition in self.model and self.tracker.states()[partition].epoch == epoch:
                model = self.model[partition]
                model.committed = max(offset, model.committed or 0)
                self.group_committed[partition] = max(offset, self.group_committed[partition])

    @precondition(lambda self: self.on_its_way)
    @rule()
    def a_commit_fails(self) -> None:
        self.on_its_way.pop()

    @invariant()
    def commits_exactly_the_naive_prefix(self) -> None:
        due = {
            partition: assignment.committable()
            for partition, assignment in self.model.items()
            if assignment.committable() is not None and assignment.committable() != assignment.committed
        }
        assert {partition: offset for partition, _, offset in self.tracker.committable()} == due

    @invariant()
    def nothing_fetched_and_never_finished_is_committed_past(self) -> None:
        for partition in PARTITIONS:
            unfinished = self.ever_fetched[partition] - self.ever_finished[partition]
            assert all(offset >= self.group_committed[partition] for offset in unfinished)

    @invariant()
    def the_oldest_unfinished_record_is_the_first_of_the_naive_ones(self) -> None:
        oldest = [
            float(next(offset for offset, finished in assignment.finished.items() if not finished))
            for assignment in self.model.values()
            if not all(assignment.finished.values())
        ]
        assert self.tracker.oldest_unfinished_since_s() == min(oldest, default=None)


TestOffsets = OffsetsMachine.TestCase
TestOffsets.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
