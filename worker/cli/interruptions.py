"""Ctrl-C and SIGTERM in a command that has something to clean up."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self, TypeVar

import uvloop

T = TypeVar("T")


class Interruptions:
    """Within the context, SIGINT and SIGTERM become a KeyboardInterrupt, wherever the command is.

    A signal that was ignored before, as a shell does for its background jobs, stays ignored.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self._previous = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
        self._install(self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process ended by the signal."""
        return 128 + (self.received or signal.SIGINT)

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run on an event loop of its own; a signal cancels `main` and is raised when that has cleaned up."""

        async def cancelled_by_signals() -> T:
            running = asyncio.current_task()

            def cancel(number: signal.Signals) -> None:
                self.received = number
                if running is not None:
                    running.cancel()

            for number in self._previous:
                asyncio.get_running_loop().add_signal_handler(number, cancel, number)
            return await main()

        try:
            result = uvloop.run(cancelled_by_signals())
        except BaseException:
            # What a cancelled connection says on its way out is no news.
            if self.received is not None:
                raise KeyboardInterrupt from None
            raise
        finally:
            # The loop took its handlers along.
            self._install(self._interrupt)
        if self.received is not None:
            raise KeyboardInterrupt
        return result

    @contextmanager
    def ignored_afterwards(self) -> Iterator[None]:
        """Once this is left, what follows is cleaning up, bounded in time: it is not to be interrupted."""
        try:
            yield
        finally:
            self._install(signal.SIG_IGN)

    def _install(self, handler: Any) -> None:
        for number in self._previous:
            signal.signal(number, handler)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        raise KeyboardInterrupt
