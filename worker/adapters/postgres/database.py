"""A unit of work in one transaction, done again where that helps, its errors translated into the worker's own."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NoReturn, TypeVar

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncTransaction

from worker.adapters.postgres.engine import open_engine, server_settings
from worker.adapters.postgres.failures import Failure, classify, connections_are_stale, sqlstate_of, translated
from worker.errors import RetryableError
from worker.settings import PostgresSettings

T = TypeVar("T")

FIRST_PAUSE_S = 0.05


class Database:
    """The pool and how work is done in it."""

    def __init__(self, engine: AsyncEngine, settings: PostgresSettings) -> None:
        self.engine = engine
        self.settings = settings
        self.retries: Counter[str] = Counter()
        """Transactions done again, by SQLSTATE; for metrics."""

    async def run(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Do `work` in a transaction of its own and commit; again, whole, after a transient error.

        After a broken connection the first commit may have taken effect: `work` must read before it believes.

        Raises:
            UnavailableError: the database is down, or stayed busy.
            RetryableError: a value was refused.
            FatalError: rights or tables are missing.
        """
        for tries in range(self.settings.transient_retries_max + 1):
            try:
                async with self.transaction() as connection:
                    return await work(connection)
            except Exception as error:  # noqa: BLE001  # raised again, or the work is done again
                if tries == self.settings.transient_retries_max or classify(error) is not Failure.TRANSIENT:
                    raise_translated(error)
                self.retries[sqlstate_of(error)] += 1
            await asyncio.sleep(FIRST_PAUSE_S * 2**tries)
        raise AssertionError("unreachable: the last try returns or raises")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """One transaction, committed on a normal exit; errors are the driver's, or what was raised within."""
        async with self.engine.connect() as connection:
            try:
                transaction = await connection.begin()
                try:
                    await self._set_timeouts(connection)
                    yield connection
                except BaseException:
                    await _undo(connection, transaction)
                    raise
                await transaction.commit()
            except Exception as error:
                if connections_are_stale(error):
                    await connection.invalidate(error)
                    await self.engine.dispose()
                raise

    async def _set_timeouts(self, connection: AsyncConnection) -> None:
        """A pooler in transaction mode hands over connections without our settings: each transaction brings them."""
        if self.settings.transaction_pooling:
            calls = [func.set_config(name, value, True) for name, value in server_settings(self.settings).items()]
            await connection.execute(select(*calls))


async def _undo(connection: AsyncConnection, transaction: AsyncTransaction) -> None:
    """Roll back; of a connection that is gone or silent nothing is told: what went wrong first is, a cancellation too.

    Nobody is to have such a connection again.
    """
    try:
        await transaction.rollback()
    except Exception as error:  # noqa: BLE001  # whatever the driver says of it
        await connection.invalidate(error)


@contextmanager
def errors_translated() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001  # raised again, as it is or translated
        raise_translated(error)


def raise_translated(error: Exception) -> NoReturn:
    raised = translated(error)
    if raised is error:
        raise error
    # The server's detail quotes the row it refused; a traceback must not show it.
    raise raised from None if isinstance(raised, RetryableError) else error


@asynccontextmanager
async def open_database(settings: PostgresSettings) -> AsyncIterator[Database]:
    async with open_engine(settings) as engine:
        yield Database(engine, settings)
