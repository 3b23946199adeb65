"""The emulator as a whole: started and stopped, told what to do wrong, asked for its bill."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Self

from worker.core.llm import Stage
from worker.embedded.llm_emulator.anthropic_wire import AnthropicWire
from worker.embedded.llm_emulator.bill import Bill
from worker.embedded.llm_emulator.clock import Clock
from worker.embedded.llm_emulator.faults import Fault
from worker.embedded.llm_emulator.http import HttpServer, Response, Work
from worker.embedded.llm_emulator.nouns import HttpRequest
from worker.embedded.llm_emulator.openai_wire import OpenAIWire
from worker.embedded.llm_emulator.options import EmulatorOptions
from worker.embedded.llm_emulator.service import LlmService, SeenRequest
from worker.embedded.llm_emulator.wire import Wire
from worker.embedded.loopback import HOST

BACKLOG = 2_048
WIRES: Mapping[str, Wire] = {"/chat/completions": OpenAIWire(), "/v1/messages": AnthropicWire()}
"""By how the path ends."""


class LlmEmulator:
    """Serves while it is entered as an async context manager.

    Over HTTP too: `GET /bill`, `DELETE /bill`, `GET /limits`, `GET /status`, `POST /hold`, `POST /release`, and
    `POST /faults` with `{"faults": ["rate_limited", null], "stage": "score"}` (stage may be left out).
    """

    def __init__(
        self,
        options: EmulatorOptions | None = None,
        *,
        port: int = 0,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options or EmulatorOptions()
        self.port = port
        self._monotonic_s = monotonic_s
        self._service: LlmService
        self._server = HttpServer(self._handle, self._schedule)
        self._held: list[Callable[[], None]] | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.options.tokenizer.load)
        self._service = LlmService(self.options, Clock(self.options.time_scale, self._monotonic_s))
        self.port = await self._server.start(HOST, self.port, BACKLOG)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    @property
    def openai_base_url(self) -> str:
        return f"http://{HOST}:{self.port}/v1"

    @property
    def anthropic_base_url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def bill(self) -> Bill:
        """Live: it grows while requests come in."""
        return self._service.bill

    @property
    def requests(self) -> tuple[SeenRequest, ...]:
        """The last calls as they came, refused ones too."""
        return tuple(self._service.seen)

    @property
    def requests_by_status(self) -> Mapping[int, int]:
        """How many responses had which status; a 429 of the limits counts like one of a fault."""
        return self._service.requests_by_status

    @property
    def in_flight(self) -> int:
        """Calls being worked on, whether or not their client still waits."""
        return self._service.in_flight

    @property
    def in_flight_max(self) -> int:
        return self._service.in_flight_max

    @property
    def connections(self) -> int:
        """Open now."""
        return self._server.connections

    @property
    def connections_accepted(self) -> int:
        return self._server.accepted

    def limits(self) -> Mapping[str, Any]:
        """`{"openai gpt-5": {"tokens": {"limit": …, "remaining": …, "charged": …}}}` of the models used so far."""
        return self._service.limits()

    def next_faults(self, *faults: Fault | None, stage: Stage | None = None) -> None:
        """Put in line for the next requests, of this stage if one is named; None is a request without a fault."""
        self._service.faults.put(faults, stage)

    def hold(self) -> None:
        """From now on calls are worked for, and their responses kept back."""
        self._held = self._held or []

    def release(self) -> None:
        """All that was kept back is sent, and nothing more is kept."""
        held, self._held = self._held or [], None
        for respond in held:
            respond()

    def status(self) -> Mapping[str, Any]:
        return {
            "requests": self._service.requests,
            "responses_by_status": self.requests_by_status,
            "in_flight": self.in_flight,
            "in_flight_max": self.in_flight_max,
            "connections": self.connections,
            "is_holding": self._held is not None,
            "held": len(self._held or ()),
        }

    def _schedule(self, work: Work, respond: Callable[[], None]) -> None:
        if self._held is not None and work.is_call:
            self._held.append(respond)
        elif work.lasts_s > 0:
            asyncio.get_running_loop().call_later(work.lasts_s, respond)
        else:
            respond()

    def _handle(self, request: HttpRequest) -> Work:
        path = request.path.partition("?")[0]
        wire = next((wire for end, wire in WIRES.items() if path.endswith(end)), None)
        if wire is not None and request.method == "POST":
            return self._service.take(request, wire)
        response = self._inspected(request, path)
        return Work(0.0, lambda: response, is_call=False)

    def _inspected(self, request: HttpRequest, path: str) -> Response:
        answer = self._questions.get((request.method, path))
        if answer is None:
            return _json(404, {"error": {"message": f"nothing at {request.method} {path}", "type": "not_found"}})
        try:
            return _json(200, answer(request.body))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            return _json(400, {"error": {"message": str(error), "type": "invalid"}})

    @cached_property
    def _questions(self) -> Mapping[tuple[str, str], Callable[[bytes], object]]:
        return {
            ("GET", "/bill"): lambda _: self.bill.document(),
            ("DELETE", "/bill"): lambda _: self.bill.clear(),
            ("GET", "/limits"): lambda _: self.limits(),
            ("GET", "/status"): lambda _: self.status(),
            ("POST", "/hold"): lambda _: self.hold(),
            ("POST", "/release"): lambda _: self.release(),
            ("POST", "/faults"): self._told_faults,
        }

    def _told_faults(self, body: bytes) -> None:
        told = json.loads(body)
        stage = Stage(told["stage"]) if told.get("stage") else None
        self.next_faults(*(fault_named(name) for name in told["faults"]), stage=stage)


def fault_named(name: object) -> Fault | None:
    """The fault of a name; None for null: a request without a fault."""
    return None if name is None else Fault(str(name))


def fault_names() -> Iterable[str]:
    return (fault.value for fault in Fault)


def _json(status: int, document: object) -> Response:
    body = (json.dumps(document) + "\n").encode()
    return Response(status, {"content-type": "application/json"}, body)
