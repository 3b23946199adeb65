"""The emulator as a whole: started and stopped, told what to do wrong, asked for its bill."""

import asyncio
import json
from collections.abc import Iterable, Mapping
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

    Over HTTP too: `GET /bill`, `DELETE /bill`, `GET /limits`, and `POST /faults` with
    `{"faults": ["rate_limited", null], "stage": "score"}` (stage may be left out).
    """

    def __init__(self, options: EmulatorOptions | None = None, *, port: int = 0) -> None:
        self.options = options or EmulatorOptions()
        self.port = port
        self._service: LlmService
        self._server = HttpServer(self._handle)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.options.tokenizer.load)
        self._service = LlmService(self.options, Clock(self.options.time_scale, loop.time))
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

    def _handle(self, request: HttpRequest) -> Work:
        path = request.path.partition("?")[0]
        wire = next((wire for end, wire in WIRES.items() if path.endswith(end)), None)
        if wire is not None and request.method == "POST":
            return self._service.take(request, wire)
        response = self._inspected(request, path)
        return Work(0.0, lambda: response)

    def _inspected(self, request: HttpRequest, path: str) -> Response:
        match request.method, path:
            case "GET", "/bill":
                return _json(200, self.bill.document())
            case "DELETE", "/bill":
                self.bill.clear()
                return _json(200, self.bill.document())
            case "GET", "/limits":
                return _json(200, self.limits())
            case "POST", "/faults":
                return self._told(request.body)
        return _json(404, {"error": {"message": f"nothing at {request.method} {path}", "type": "not_found"}})

    def _told(self, body: bytes) -> Response:
        try:
            told = json.loads(body)
            faults = [fault_named(name) for name in told["faults"]]
            stage = Stage(told["stage"]) if told.get("stage") else None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            return _json(400, {"error": {"message": str(error), "type": "invalid"}})
        self.next_faults(*faults, stage=stage)
        return _json(200, {"faults": len(faults)})


def fault_named(name: object) -> Fault | None:
    """The fault of a name; None for null: a request without a fault."""
    return None if name is None else Fault(str(name))


def fault_names() -> Iterable[str]:
    return (fault.value for fault in Fault)


def _json(status: int, document: object) -> Response:
    body = (json.dumps(document) + "\n").encode()
    return Response(status, {"content-type": "application/json"}, body)
