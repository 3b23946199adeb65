"""A member of the group as the worker sees it: `RecordStream` and `Publisher`, with aiokafka's manners."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from tests.guarantees.simulation.broker import REBALANCE_S, SESSION_S, Assigned, Broker, CoordinatorMovesError
from tests.guarantees.simulation.loop import OWNER
from tests.guarantees.simulation.schedule import KAFKA
from tests.guarantees.simulation.world import Guarantee, Server, World
from worker.core.records import OutboundMessage, Record, TopicPartition
from worker.errors import UnavailableError
from worker.ports import RebalanceListener

RETRY_S = 0.3
JOINING_S = REBALANCE_S + 10.0
MAX_POLL_S = KAFKA.max_poll_interval_ms / 1000


class SimulatedStream:
    """Fetches wait while the group rebalances; a commit goes out under the generation of the moment it is sent."""

    def __init__(self, world: World, kafka: Server, broker: Broker) -> None:
        process = OWNER.get()
        assert process is not None
        self.process = process
        self._world = world
        self._kafka = kafka
        self._broker = broker
        self._listener: RebalanceListener | None = None
        self._coordination: asyncio.Task[None] | None = None
        self._member: int | None = None
        self._generation = -1
        self._positions: dict[TopicPartition, int | None] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._rejoin = asyncio.Event()
        self._stable = asyncio.Event()
        self._came = asyncio.Event()
        self._turn = 0
        self._polled_s = world.loop.time()

    # The group's side of it

    def must_rejoin(self) -> None:
        self._rejoin.set()

    def records_came(self) -> None:
        self._came.set()

    async def start(self, listener: RebalanceListener) -> None:
        self._listener = listener
        await self._world.ask(self._kafka, lambda: None)
        self._coordination = asyncio.get_running_loop().create_task(self._coordinate())
        try:
            async with asyncio.timeout(JOINING_S):
                await self._stable.wait()
        except TimeoutError:
            await self.stop()
            raise UnavailableError("no assignment in time") from None
        except asyncio.CancelledError:
            await self.stop()
            raise
        self._polled_s = self._world.loop.time()

    async def _coordinate(self) -> None:
        """aiokafka's background task: it lives and is halted with its process."""
        assert self._listener is not None
        while True:
            self._stable.clear()
            self._world.note("partitions.revoking", sorted(tp.partition for tp in self._positions))
            await self._listener.on_revoked(list(self._positions))
            self._positions, self._paused, self._ends = {}, set(), {}
            assigned = await self._joined()
            self._member, self._generation = assigned.member, assigned.generation
            self._positions = dict.fromkeys(assigned.partitions)
            self._world.note("partitions.assigned", sorted(tp.partition for tp in assigned.partitions))
            await self._listener.on_assigned(list(assigned.partitions))
            self._stable.set()
            await self._find_positions(assigned)
            await self._rejoin.wait()

    async def _joined(self) -> Assigned:
        while True:
            self._rejoin.clear()
            try:
                return await self._join(self._member)
            except (UnavailableError, TimeoutError):
                await asyncio.sleep(RETRY_S)

    async def _join(self, member: int | None) -> Assigned:
        joining: asyncio.Future[Assigned] = asyncio.get_running_loop().create_future()
        await self._world.ask(self._kafka, lambda: self._broker.join(self, member, joining))
        async with asyncio.timeout(REBALANCE_S + 1):
            return await joining

    async def _find_positions(self, assigned: Assigned) -> None:
        while not self._rejoin.is_set():
            try:
                found = await self._world.ask(self._kafka, lambda: self._broker.committed_of(assigned.partitions))
            except UnavailableError:
                await asyncio.sleep(RETRY_S)
                continue
            self._positions.update(found)
            self._came.set()
            return

    # The worker's side of it

    async def fetch(self, *, records_max: int, timeout_ms: int) -> Sequence[Record]:
        self._check_started()
        self._check_polled_in_time()
        deadline_s = self._world.loop.time() + timeout_ms / 1000
        await asyncio.sleep(self._world.travel_s(self._kafka))
        while True:
            await self._stable.wait()
            is_down = self._kafka.outage.is_on(self._world)
            if is_down and self._world.chance(0.5):
                raise UnavailableError("no broker")
            records = [] if is_down else self._take(records_max)
            left_s = deadline_s - self._world.loop.time()
            if records or left_s <= 0:
                self._polled_s = self._world.loop.time()
                return records
            self._came.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._came.wait()
            except TimeoutError:
                continue

    def _check_polled_in_time(self) -> None:
        if self._world.loop.time() - self._polled_s > MAX_POLL_S and not self.process.was_frozen:
            self._world.violate(Guarantee.STAYS_A_MEMBER, "the group was not polled within the maximum poll interval")
        self._polled_s = self._world.loop.time()

    def _take(self, records_max: int) -> list[Record]:
        known = {partition: position for partition, position in self._positions.items() if position is not None}
        readable = sorted(known.keys() - self._paused)
        if not readable:
            return []
        self._turn = (self._turn + 1) % len(readable)
        taken: list[Record] = []
        for limit in (max(1, records_max // len(readable)), records_max):
            for partition in readable[self._turn :] + readable[: self._turn]:
                taken += self._read(partition, min(limit, records_max - len(taken)))
        return taken

    def _read(self, partition: TopicPartition, records_max: int) -> list[Record]:
        position = self._positions[partition]
        assert position is not None
        log = self._broker.logs[partition]
        records = [record for record in log if record.offset >= position][:records_max]
        self._ends[partition] = self._broker.end(partition)
        for record in records:
            again = (partition, record.offset) in self._broker.fetched
            self._broker.fetched.add((partition, record.offset))
            self._world.note("record.redelivered" if again else "record.fetched", partition.partition, record.offset)
        if records:
            self._positions[partition] = records[-1].offset + 1
        return records

    def assignment(self) -> frozenset[TopicPartition]:
        self._check_started()
        return frozenset(self._positions)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._paused |= set(partitions) & self._positions.keys()

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._paused -= set(partitions)
        self._came.set()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._check_started()
        mine = {partition: offset for partition, offset in offsets.items() if partition in self._positions}
        if not mine:
            return
        try:
            async with asyncio.timeout(KAFKA.commit_timeout_ms / 1000):
                while not await self._committed(mine):  # noqa: ASYNC110  # nobody tells when the coordinator has moved
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise UnavailableError("the commit took too long") from None

    async def _committed(self, offsets: Mapping[TopicPartition, int]) -> bool:
        member, generation = self._member, self._generation
        try:
            await self._world.ask(self._kafka, lambda: self._broker.commit(member, generation, offsets))
        except CoordinatorMovesError:
            return False
        return True

    def lag(self) -> Mapping[TopicPartition, int | None]:
        self._check_started()
        return {partition: self._lag_of(partition, position) for partition, position in self._positions.items()}

    def _lag_of(self, partition: TopicPartition, position: int | None) -> int | None:
        end = self._ends.get(partition)
        return None if end is None or position is None else max(0, end - position)

    async def stop(self) -> None:
        """Leaves the group; `on_revoked` is not called, as aiokafka does not."""
        if self._coordination is None:
            return
        coordination, self._coordination = self._coordination, None
        coordination.cancel()
        await asyncio.wait([coordination])
        self._positions = {}
        # Its heartbeats end, also where the group has let it in and it does not know it yet.
        self._world.later(SESSION_S, self._broker.forget, self)
        if self._member is not None:
            number = self._member
            with suppress(UnavailableError):
                await self._world.ask(self._kafka, lambda: self._broker.leave(number))

    def _check_started(self) -> None:
        if self._coordination is None:
            raise UnavailableError("the record stream is not started")
        if self._coordination.done() and not self._world.is_over:
            self._world.violate(Guarantee.NO_BUGS, f"the coordination ended: {self._coordination}")


class SimulatedPublisher:
    """See `Publisher`."""

    def __init__(self, world: World, kafka: Server, broker: Broker) -> None:
        self._world = world
        self._kafka = kafka
        self._broker = broker

    async def publish(self, messages: Sequence[OutboundMessage]) -> None:
        await self._world.ask(self._kafka, lambda: self._broker.publish(messages))
