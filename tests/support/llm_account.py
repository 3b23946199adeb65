"""An emulated LLM account in a process of its own, so that only our own work is measured here."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from worker.embedded.loopback import HOST


@dataclass(frozen=True)
class LlmAccount:
    """Its address, and what it says of itself."""

    base_url: str
    pid: int

    def settings(self) -> Mapping[str, Mapping[str, object]]:
        """Sections of a worker that judges by it."""
        return {
            "judge": {"name": "openai", "model": "gpt-4.1-mini", "secret": "a secret of the benchmark"},
            "llm": {"openai_api_key": "any", "openai_base_url": self.base_url},
        }

    def bill(self) -> list[Mapping[str, Any]]:
        lines: list[Mapping[str, Any]] = self._get("/bill")["lines"]
        return lines

    def in_flight(self) -> int:
        count: int = self._get("/status")["in_flight"]
        return count

    def clear(self) -> None:
        self._ask("DELETE", "/bill")

    def hold(self) -> None:
        self._ask("POST", "/hold")

    def release(self) -> None:
        self._ask("POST", "/release")

    def _get(self, path: str) -> Any:
        return json.loads(self._ask("GET", path))

    def _ask(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(self.base_url.removesuffix("/v1") + path, method=method)  # noqa: S310  # ours
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310  # ours, on loopback
            body: bytes = response.read()
            return body


@contextmanager
def llm_account(*options: str) -> Iterator[LlmAccount]:
    """`attribution-worker llm-emulator` with these options."""
    command = [sys.executable, "-u", "-m", "worker", "llm-emulator", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603  # our own program
        assert process.stdout is not None
        try:
            for line in process.stdout:
                name, _, value = line.strip().partition("=")
                if name == "ATTRIBUTION_LLM__OPENAI_BASE_URL":
                    assert HOST in value
                    yield LlmAccount(value, process.pid)
                    break
        finally:
            process.terminate()
