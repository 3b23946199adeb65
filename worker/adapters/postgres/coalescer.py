"""Many concurrent calls, few round trips: whatever waits while a flush is under way goes out together in the next."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from worker.errors import UnavailableError

Item = TypeVar("Item")
Result = TypeVar("Result")

Flush = Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]]
"""Does a batch and returns for each item its result or its own error; raising fails the whole batch."""


class Coalescer(Generic[Item, Result]):
    """A queue and the flushers that empty it; an idle flusher takes an item at once, never waiting for company.

    A submitted item is done even if its caller stops waiting: half of a batch cannot be taken back. At most as many
    items wait as there are callers, plus those whose callers have left.
    """

    def __init__(self, flush: Flush[Item, Result], *, batch_max: int, timeout_s: float) -> None:
        self._flush = flush
        self._batch_max = batch_max
        self._timeout_s = timeout_s
        self._queue: asyncio.Queue[tuple[Item, asyncio.Future[Result]]] = asyncio.Queue()
        self._closed = False

    async def submit(self, item: Item) -> Result:
        """The item's result.

        Raises:
            UnavailableError: its batch took longer than the timeout, or nobody flushes any more; it may have been done.
        """
        if self._closed:
            raise UnavailableError("the store is closed")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((item, future))
        return await future

    async def run(self) -> None:
        """Flush until cancelled; several may run side by side."""
        while True:
            batch = [await self._queue.get()]
            while len(batch) < self._batch_max and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            try:
                await self._deliver(batch)
            finally:
                for _, future in batch:
                    self._queue.task_done()
                    # A cancelled future would look to its caller as if the caller itself had been cancelled.
                    _fail(future, UnavailableError("the store was closed during the flush; the outcome is unknown"))

    async def close(self) -> None:
        """Take nothing more, and finish what was taken, within the timeout; what is left is told so."""
        self._closed = True
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._queue.join()
        except TimeoutError:
            while not self._queue.empty():
                _, future = self._queue.get_nowait()
                _fail(future, UnavailableError("the store was closed before this was flushed"))

    async def _deliver(self, batch: Sequence[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                results = await self._flush([item for item, _ in batch])
        except TimeoutError:
            results = [UnavailableError(f"not done within {self._timeout_s:g} s; the outcome is unknown")] * len(batch)
        except Exception as error:  # noqa: BLE001  # whatever it is belongs to those who wait for this batch
            results = [error] * len(batch)
        for (_, future), result in zip(batch, results, strict=True):
            if isinstance(result, Exception):
                _fail(future, result)
            elif not future.done():
                future.set_result(result)


def _fail(future: asyncio.Future[Result], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


@asynccontextmanager
async def coalescing(
    flush: Flush[Item, Result], *, batch_max: int, timeout_s: float, flushers: int
) -> AsyncIterator[Callable[[Item], Coroutine[None, None, Result]]]:
    """`submit` of a coalescer whose flushers live as long as the context; leaving it finishes what was submitted."""
    coalescer = Coalescer(flush, batch_max=batch_max, timeout_s=timeout_s)
    raised: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(coalescer.run()) for _ in range(flushers)]
        try:
            yield coalescer.submit
        except Exception as error:  # noqa: BLE001  # raised below: out of the group it comes as it went in
            raised = error
        finally:
            await coalescer.close()
            for task in running:
                task.cancel()
    if raised is not None:
        raise raised
