"""The broker's side: logs, one consumer group with its coordinator, committed offsets, and the topics published to."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.guarantees.simulation.corpus import Produced
from tests.guarantees.simulation.loop import Process
from tests.guarantees.simulation.schedule import KAFKA
from tests.guarantees.simulation.truth import Truth
from tests.guarantees.simulation.world import Guarantee, Outage, World
from worker.core.records import OutboundMessage, Record, TopicPartition
from worker.errors import UnavailableError

TOPIC = KAFKA.answers_topic
SESSION_S = KAFKA.session_timeout_ms / 1000
REBALANCE_S = KAFKA.rebalance_timeout_ms / 1000
HEARTBEAT_S = KAFKA.heartbeat_interval_ms / 1000
TIMESTAMP_MS = 1_780_000_000_000


class CoordinatorMovesError(UnavailableError):
    """A client asks again by itself."""


class Client(Protocol):
    """A member's own code, in its own process."""

    process: Process

    def must_rejoin(self) -> None: ...

    def records_came(self) -> None: ...


@dataclass(frozen=True)
class Assigned:
    """What a member is told when a rebalance ends."""

    member: int
    generation: int
    partitions: tuple[TopicPartition, ...]


@dataclass(eq=False)
class Member:
    """As the coordinator knows it; `joining` is set while it waits for the rebalance to end."""

    number: int
    client: Client
    joining: "asyncio.Future[Assigned] | None" = None


@dataclass
class Broker:
    """Eager rebalances, generations and fencing as Apache Kafka's classic group protocol has them."""

    world: World
    truth: Truth
    partitions: int
    topic_partitions: list[TopicPartition] = field(init=False)
    logs: dict[TopicPartition, list[Record]] = field(init=False)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    published: dict[str, list[OutboundMessage]] = field(default_factory=lambda: defaultdict(list))
    members: dict[int, Member] = field(default_factory=dict)
    generation: int = 0
    is_rebalancing: bool = False
    commits_fail: Outage = field(default_factory=Outage)
    fetched: set[tuple[TopicPartition, int]] = field(default_factory=set)
    _numbers: int = 0
    _round: int = 0

    def __post_init__(self) -> None:
        self.topic_partitions = [TopicPartition(TOPIC, number) for number in range(self.partitions)]
        self.logs = {topic_partition: [] for topic_partition in self.topic_partitions}

    # Records

    def append(self, produced: Produced) -> None:
        topic_partition = self.topic_partitions[produced.partition]
        offset = self.end(topic_partition) + produced.hole
        record = Record(TOPIC, produced.partition, offset, TIMESTAMP_MS, b"key", produced.value, (("origin", b"sim"),))
        self.truth.produced[produced.partition, offset] = produced
        self.logs[topic_partition].append(record)
        self.world.note("record.produced", produced.kind.name, produced.partition, offset)
        for member in list(self.members.values()):
            self.tell(member.client, member.client.records_came, within_s=0.1)

    def end(self, topic_partition: TopicPartition) -> int:
        log = self.logs[topic_partition]
        return log[-1].offset + 1 if log else 0

    def all_committed(self) -> bool:
        return all(
            self.committed.get(topic_partition, 0) >= self.end(topic_partition)
            for topic_partition in self.topic_partitions
        )

    def publish(self, messages: Sequence[OutboundMessage]) -> None:
        """Now and then only the first of them get through."""
        through = len(messages)
        if self.world.chance(0.03):
            through = self.world.rng.randrange(len(messages))
        for message in messages[:through]:
            self.published[message.topic].append(message)
        self.world.note("messages.published", through)
        if through < len(messages):
            raise UnavailableError("not acknowledged by all")

    # The group

    def join(self, client: Client, number: int | None, joining: "asyncio.Future[Assigned]") -> None:
        member = self.members.get(number) if number is not None else None
        if member is None:
            self._forget_later(client)
            self._numbers += 1
            member = self.members[self._numbers] = Member(self._numbers, client)
        member.joining = joining
        # A request may arrive when whoever sent it is halted already.
        self.fell_silent(client.process)
        self.world.note("group.joined", member.number)
        self.rebalance()
        self._end_rebalance_if_all_joined()

    def _forget_later(self, client: Client) -> None:
        """Whoever joins as a new member beats no more for the one it was, if only the group's answer was lost."""
        for number, member in self.members.items():
            if member.client is client:
                self.world.later(SESSION_S, self.expire, number)

    def rebalance(self) -> None:
        if self.is_rebalancing or not self.members:
            return
        self.is_rebalancing = True
        self._round += 1
        self.world.note("group.rebalances", self.generation)
        self.world.later(REBALANCE_S, self._drop_laggards, self._round)
        for member in list(self.members.values()):
            if member.joining is None:
                self.tell(member.client, member.client.must_rejoin, within_s=HEARTBEAT_S)

    def tell(self, client: Client, act: Callable[[], None], *, within_s: float) -> None:
        """A message to a member's process, which a frozen one reads when it wakes."""
        self.world.later(self.world.rng.random() * within_s, client.process.run_in, act)

    def expire(self, number: int) -> None:
        """The group goes on without this member, which learns it from the answer to its next heartbeat."""
        member = self.members.pop(number, None)
        if member is None:
            return
        self.world.note("group.expired", member.client.process.name, number)
        self.tell(member.client, member.client.must_rejoin, within_s=HEARTBEAT_S)
        self._reconsider()

    def forget(self, client: Client) -> None:
        """Whatever the group still has of a client that is no more."""
        for number in [number for number, member in self.members.items() if member.client is client]:
            self.expire(number)

    def leave(self, number: int) -> None:
        if self.members.pop(number, None) is not None:
            self.world.note("group.left", number)
            self._reconsider()

    def fell_silent(self, process: Process) -> None:
        """Its heartbeats stop, if it is halted: its members expire unless it comes back in time."""
        if not process.is_halted:
            return
        for number, member in list(self.members.items()):
            if member.client.process is process:
                self.world.later(SESSION_S, self._expire_if_silent, number, process, process.halts)

    def _expire_if_silent(self, number: int, process: Process, halts: int) -> None:
        if process.is_halted and process.halts == halts:
            self.expire(number)

    def _reconsider(self) -> None:
        if self.is_rebalancing:
            self._end_rebalance_if_all_joined()
        else:
            self.rebalance()

    def _drop_laggards(self, round_: int) -> None:
        if self.is_rebalancing and self._round == round_:
            for number in [number for number, member in self.members.items() if member.joining is None]:
                self.expire(number)
            self._end_rebalance_if_all_joined()

    def _end_rebalance_if_all_joined(self) -> None:
        if not self.is_rebalancing or any(member.joining is None for member in self.members.values()):
            return
        self.is_rebalancing = False
        self.generation += 1
        members = list(self.members.values())
        self.world.rng.shuffle(members)
        for index, member in enumerate(members):
            mine = tuple(self.topic_partitions[index :: len(members)])
            self.world.note("group.assigned", member.client.process.name, [tp.partition for tp in mine])
            assert member.joining is not None
            self.world.later(0.01, _tell, member.joining, Assigned(member.number, self.generation, mine))
            member.joining = None

    # Offsets

    def committed_of(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.committed.get(partition, 0) for partition in partitions}

    def commit(self, number: int | None, generation: int, offsets: Mapping[TopicPartition, int]) -> None:
        """Accepted of members of this generation alone; never past a record that has no outcome, never back."""
        if self.commits_fail.is_on(self.world):
            raise CoordinatorMovesError("not the coordinator") if self.world.chance(0.5) else UnavailableError("no")
        if number not in self.members or generation != self.generation:
            self.world.note("commit.fenced", generation, self.generation)
            raise UnavailableError("the group has rebalanced")
        self.world.note("commit", [(tp.partition, offset) for tp, offset in sorted(offsets.items())])
        for topic_partition, offset in offsets.items():
            for record in self.logs[topic_partition]:
                if record.offset < offset and not self.truth.has_outcome(record):
                    self.world.violate(
                        Guarantee.NEVER_COMMITTED_PAST_UNFINISHED, f"{topic_partition} {record.offset} < {offset}"
                    )
            if offset < self.committed.get(topic_partition, 0):
                self.world.violate(Guarantee.COMMITS_NEVER_MOVE_BACK, f"{topic_partition} to {offset}")
            if offset > self.end(topic_partition):
                self.world.violate(
                    Guarantee.NEVER_COMMITTED_PAST_UNFINISHED, f"{topic_partition} past its end: {offset}"
                )
            self.committed[topic_partition] = offset


def _tell(joining: "asyncio.Future[Assigned]", assigned: Assigned) -> None:
    if not joining.done():
        joining.set_result(assigned)
