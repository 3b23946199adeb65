import asyncio
from collections.abc import Awaitable, Sequence

import pytest

from tests.support.conditions import until
from worker.adapters.postgres.coalescer import coalescing
from worker.errors import RetryableError, UnavailableError


class Server:
    """Doubles numbers in batches, when let; keeps every batch it was given."""

    def __init__(self, *, open_gate: bool = True) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.poison: set[int] = set()
        self.failure: Exception | None = None
        if open_gate:
            self.gate.set()

    async def flush(self, items: Sequence[int]) -> Sequence[int | Exception]:
        self.batches.append(list(items))
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return [RetryableError(f"{item} is bad") if item in self.poison else 2 * item for item in items]


async def test_a_lone_item_is_flushed_at_once() -> None:
    server = Server()
    async with coalescing(server.flush, batch_max=10, timeout_s=5, flushers=1) as submit:
        assert await submit(21) == 42
    assert server.batches == [[21]]


async def test_what_waits_during_a_flush_goes_out_together_and_in_order() -> None:
    server = Server(open_gate=False)
    async with coalescing(server.flush, batch_max=4, timeout_s=5, flushers=1) as submit, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(submit(0))
        await until(lambda: server.batches)
        rest = [tasks.create_task(submit(item)) for item in range(1, 7)]
        await asyncio.sleep(0)
        server.gate.set()
        assert [await task for task in (first, *rest)] == [0, 2, 4, 6, 8, 10, 12]
    assert server.batches == [[0], [1, 2, 3, 4], [5, 6]]


async def test_a_bad_item_fails_alone() -> None:
    server = Server()
    server.poison = {2}
    async with coalescing(server.flush, batch_max=10, timeout_s=5, flushers=1) as submit:
        async with asyncio.TaskGroup() as tasks:
            good = [tasks.create_task(submit(item)) for item in (1, 3)]
            with pytest.raises(RetryableError, match="2 is bad"):
                await submit(2)
        assert [task.result() for task in good] == [2, 6]


async def test_a_failed_flush_fails_its_batch_and_the_next_one_works() -> None:
    server = Server()
    server.failure = UnavailableError("down")
    async with coalescing(server.flush, batch_max=10, timeout_s=5, flushers=1) as submit:
        with pytest.raises(UnavailableError, match="down"):
            await submit(1)
        server.failure = None
        assert await submit(1) == 2


async def test_a_caller_that_stops_waiting_cancels_neither_its_item_nor_its_neighbours() -> None:
    server = Server(open_gate=False)
    async with coalescing(server.flush, batch_max=10, timeout_s=5, flushers=1) as submit, asyncio.TaskGroup() as tasks:
        leaver = tasks.create_task(submit(1))
        await until(lambda: server.batches)
        stayer = tasks.create_task(submit(2))
        queued_leaver = tasks.create_task(submit(3))
        await asyncio.sleep(0)
        leaver.cancel()
        queued_leaver.cancel()
        server.gate.set()
        assert await stayer == 4
    assert server.batches == [[1], [2, 3]]


async def test_a_flush_that_hangs_is_given_up_and_its_callers_are_told() -> None:
    server = Server(open_gate=False)
    async with coalescing(server.flush, batch_max=10, timeout_s=0.01, flushers=1) as submit:
        with pytest.raises(UnavailableError, match=r"0\.01 s"):
            await submit(1)
        server.gate.set()
        assert await submit(1) == 2


async def test_leaving_finishes_what_was_submitted_and_takes_nothing_more() -> None:
    server = Server(open_gate=False)
    async with asyncio.TaskGroup() as tasks:
        async with coalescing(server.flush, batch_max=1, timeout_s=5, flushers=2) as submit:
            waiting = [tasks.create_task(submit(item)) for item in range(5)]
            await until(lambda: len(server.batches) == 2)
            server.gate.set()
        assert [task.result() for task in waiting] == [0, 2, 4, 6, 8]
        with pytest.raises(UnavailableError, match="closed"):
            await submit(6)


async def test_leaving_while_a_flush_hangs_tells_every_caller_instead_of_waiting_for_ever() -> None:
    server = Server(open_gate=False)
    async with (
        asyncio.TaskGroup() as tasks,
        coalescing(server.flush, batch_max=1, timeout_s=0.05, flushers=1) as submit,
    ):
        waiting = [tasks.create_task(outcome(submit(item))) for item in range(3)]
        await until(lambda: server.batches)
    assert [type(task.result()) for task in waiting] == [UnavailableError] * 3


async def outcome(call: Awaitable[int]) -> int | UnavailableError:
    try:
        return await call
    except UnavailableError as error:
        return error
