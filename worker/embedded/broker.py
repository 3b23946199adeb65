"""What the demo, the tests and the benchmarks know of a broker: one small interface, whichever broker it is."""

import time
from collections.abc import Mapping
from typing import Protocol, Self

from worker.embedded.failure import LaunchError
from worker.embedded.keeper import Keeper
from worker.embedded.loopback import answers_kafka

POLL_INTERVAL_S = 0.02


class Broker(Protocol):
    """A single broker on 127.0.0.1. As a context manager it is started, and at the end gone with all it stored."""

    @property
    def name(self) -> str: ...

    @property
    def bootstrap_servers(self) -> str:
        """Known from the first start on, and the same at every further one."""
        ...

    def settings_overrides(self) -> Mapping[str, object]:
        """Fields of `KafkaSettings` with the values that this broker needs."""
        ...

    def start(self) -> None:
        """Returns when the broker answers; after `stop` or `kill`, on the same port. While it runs: nothing."""
        ...

    def stop(self) -> None:
        """In order; what is stored stays for the next start, where the broker keeps anything."""
        ...

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        ...

    def close(self) -> None:
        """End it and remove everything it stored. Again is nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def await_broker(name: str, keeper: Keeper, port: int, timeout_s: float) -> None:
    """Wait until the kept process answers as a broker.

    Raises:
        LaunchError: it ended, or does not answer within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        answered = answers_kafka(port)
        status = keeper.wait(0 if answered else POLL_INTERVAL_S)
        if status is not None:
            raise LaunchError(f"{name} ended with status {status} instead of listening{keeper.output_tail()}")
        if answered:
            return
    raise LaunchError(f"{name} does not answer after {timeout_s:g} s{keeper.output_tail()}")
