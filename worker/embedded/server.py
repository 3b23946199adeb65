"""The life of one server process on 127.0.0.1: prepared, served, stopped, started again, gone with its owner."""

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

from worker.embedded.failure import LaunchError
from worker.embedded.keeper import Account, Keeper
from worker.embedded.loopback import free_port, is_free

PORT_ATTEMPTS = 3
POLL_INTERVAL_S = 0.01
STOP_TIMEOUT_S = 60.0


class Server(ABC):
    """What brokers and databases share. As a context manager it is started, and at the end gone with its data."""

    name: str
    stop_signal = signal.SIGTERM
    port_count = 1

    def __init__(self) -> None:
        self._keeper: Keeper | None = None
        self._ports: tuple[int, ...] = ()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _prepare(self, keeper: Keeper, ports: tuple[int, ...]) -> None:
        """Write into the fresh directory what a server on these ports needs."""

    @abstractmethod
    def _serve(self, keeper: Keeper, ports: tuple[int, ...]) -> None:
        """Spawn the server, and return when it serves."""

    def _account(self) -> Account | None:
        return None

    @property
    def port(self) -> int:
        """Known from the first start on, and the same at every further one."""
        if not self._ports:
            raise LaunchError(f"{self.name} has not been started")
        return self._ports[0]

    @property
    def pid(self) -> int | None:
        """Of the server process while it runs."""
        return None if self._keeper is None else self._keeper.pid

    def start(self) -> None:
        """Returns when it serves; after `stop` or `kill`, on the same port with the same data. While it runs: nothing.

        Raises:
            LaunchError: it did not start.
            MissingPrerequisiteError: something has to be installed first.
        """
        if self._keeper is None:
            self._first_start()
        elif self._keeper.pid is None:
            self._serve(self._keeper, self._ports)

    def stop(self) -> None:
        """End it in order: it writes what it has to, and a next start goes on from there."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """End it and remove its data. Again is nothing."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    def _first_start(self) -> None:
        for attempt in range(PORT_ATTEMPTS):
            ports = tuple(free_port() for _ in range(self.port_count))
            self._keeper = Keeper(account=self._account())
            try:
                self._prepare(self._keeper, ports)
                self._serve(self._keeper, ports)
            except LaunchError:
                self.close()
                # A port that was taken between the look and the bind is worth another try, and nothing else is.
                if attempt == PORT_ATTEMPTS - 1 or all(is_free(port) for port in ports):
                    raise
            else:
                self._ports = ports
                return

    def _end(self, number: signal.Signals) -> None:
        if self._keeper is None:
            raise LaunchError(f"{self.name} is not there: not started, or closed")
        self._keeper.signal(number)
        self._keeper.wait(STOP_TIMEOUT_S)
        if self._keeper.pid is not None:
            raise LaunchError(f"{self.name} did not stop within {STOP_TIMEOUT_S:g} s{self._keeper.output_tail()}")


def await_serving(name: str, keeper: Keeper, serves: Callable[[], bool], *, timeout_s: float) -> None:
    """Wait until the kept process serves.

    Raises:
        LaunchError: it ended, or does not serve within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        served = serves()
        # Asked after the probe: an answer counts only if it can have come from our process.
        status = keeper.wait(0 if served else POLL_INTERVAL_S)
        if status is not None:
            raise LaunchError(f"{name} ended with status {status} instead of serving{keeper.output_tail()}")
        if served:
            return
    raise LaunchError(f"{name} does not serve after {timeout_s:g} s{keeper.output_tail()}")
