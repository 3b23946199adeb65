"""What the demo, the tests and the benchmarks know of a broker: one small interface, whichever broker it is."""

from collections.abc import Mapping
from typing import Protocol, Self


class Broker(Protocol):
    """A single broker on 127.0.0.1. As a context manager it is started, and at the end gone with all it stored."""

    @property
    def name(self) -> str: ...

    @property
    def bootstrap_servers(self) -> str:
        """Known from the first start on, and the same at every further one."""
        ...

    def settings_overrides(self) -> Mapping[str, object]:
        """Fields of `KafkaSettings` with the values that this broker needs, its address among them."""
        ...

    def start(self) -> None:
        """Returns when the broker answers; after `stop` or `kill`, on the same port. While it runs: nothing."""
        ...

    def stop(self) -> None:
        """In order; what is stored stays for the next start, where the broker stores anything."""
        ...

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        ...

    def close(self) -> None:
        """End it and remove everything it stored. Again is nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
