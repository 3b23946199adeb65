"""The three pages: `/livez`, `/readyz` and `/metrics`."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics import exposition as openmetrics

from worker.telemetry import log

JSON = "application/json"
OPENMETRICS = "application/openmetrics-text"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold; `told` says how it is, whether it holds or not."""

    name: str
    holds: bool
    told: str


@dataclass(frozen=True, slots=True)
class Page:
    """A whole response."""

    status: HTTPStatus
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_status(cls, status: HTTPStatus, headers: Mapping[str, str] | None = None) -> "Page":
        """A page that says nothing but its status."""
        return cls(status, json.dumps({"status": status.phrase}).encode(), headers=headers or {})


class Answering:
    """Pages by path. A check that does not hold makes 503, and is logged when that is new."""

    def __init__(
        self,
        *,
        alive: Callable[[], Sequence[Check]],
        ready: Callable[[], Sequence[Check]],
        registry: CollectorRegistry,
    ) -> None:
        self._checks = {"/livez": alive, "/readyz": ready}
        self._registry = registry
        self._failing: set[tuple[str, str]] = set()

    def __call__(self, path: str, accept: str) -> Page:
        if path in self._checks:
            return self._checked(path, self._checks[path]())
        if path == "/metrics":
            return self._metrics(accept)
        return Page.of_status(HTTPStatus.NOT_FOUND)

    def _metrics(self, accept: str) -> Page:
        """OpenMetrics where it is asked for."""
        if OPENMETRICS in accept:
            body: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]  # the library's
            return Page(HTTPStatus.OK, body, openmetrics.CONTENT_TYPE_LATEST)
        return Page(HTTPStatus.OK, generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4)

    def _checked(self, path: str, checks: Sequence[Check]) -> Page:
        for check in checks:
            self._log_change(path, check)
        holds = all(check.holds for check in checks)
        told = {
            "status": "ok" if holds else "failed",
            "checks": {check.name: {"ok": check.holds, "told": check.told} for check in checks},
        }
        return Page(HTTPStatus.OK if holds else HTTPStatus.SERVICE_UNAVAILABLE, json.dumps(told).encode())

    def _log_change(self, path: str, check: Check) -> None:
        failing = (path, check.name)
        if check.holds:
            self._failing.discard(failing)
        elif failing not in self._failing:
            self._failing.add(failing)
            log.warning("check.failed", path=path, check=check.name, told=check.told)
