"""An LLM provider with visible state: answers as its model does, fails as it was told to first, and remembers."""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime

from tests.fakes.language_model import FakeModel
from worker.core.calls import CallFailure, CallProblem
from worker.core.cost import UnitPrices
from worker.core.llm import Completion, CompletionRequest, CompletionUsage, Finish, Stage, UsageSource
from worker.llm_ports import CallFailedError, Reply

USAGE = CompletionUsage(input_tokens=700, output_tokens=200, cache_read_tokens=100, reasoning_tokens=50)
NAME = "openai"
MODEL = "fake-model"


def problem(failure: CallFailure, *, lost: bool = False, status: int | None = 500) -> CallProblem:
    return CallProblem(failure, f"as told: {failure.value}", status=None if lost else status, response_lost=lost)


@dataclass(slots=True)
class FakeCall:
    """A call as it arrived; `ended` once its response was given, or it failed."""

    client_request_id: str
    request: CompletionRequest
    timeout_s: float
    ended: bool = False


class FakeProvider:
    """See `Provider`. `told` are failures of the next calls, in turn; None is a call that is answered."""

    name = NAME
    model = MODEL

    def __init__(self, model: FakeModel, *, latency_s: float = 1.0) -> None:
        self.language_model = model
        self.latency_s = latency_s
        self.told: deque[CallProblem | Exception | None] = deque()
        self.fails_always: Callable[[CompletionRequest], CallProblem | None] = lambda _: None
        self.usage = USAGE
        self.calls: list[FakeCall] = []
        self.in_flight = 0
        self.in_flight_max = 0
        self.on_call: Callable[[FakeCall], None] = lambda _: None
        self.on_read: Callable[[str], None] = lambda _: None

    def tell(self, *failures: CallProblem | Exception | None) -> None:
        self.told.extend(failures)

    def asked(self, stage: Stage) -> list[CompletionRequest]:
        return [call.request for call in self.calls if call.request.stage is stage]

    async def complete(self, request: CompletionRequest, *, client_request_id: str, timeout_s: float) -> Reply:
        call = FakeCall(client_request_id, request, timeout_s)
        self.calls.append(call)
        self.on_call(call)
        failure = self.fails_always(request) or (self.told.popleft() if self.told else None)
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            await asyncio.sleep(self.latency_s)
        finally:
            self.in_flight -= 1
        call.ended = True
        if isinstance(failure, CallProblem):
            raise CallFailedError(failure)
        if failure is not None:
            raise failure
        return Reply(raw=self._body(self.language_model.complete(request)), headers={})

    def read(self, raw: str, request: CompletionRequest) -> Completion:
        self.on_read(raw)
        body = json.loads(raw)
        usage = CompletionUsage(**body["usage"] | {"source": UsageSource(body["usage"]["source"])})
        return Completion(Finish(body["finish"]), body["text"], usage, raw, "req-1")

    def _body(self, completion: Completion) -> str:
        return json.dumps({"finish": completion.finish, "text": completion.text, "usage": asdict(self.usage)})


class FakePrices:
    """The same prices whatever the time and size; None is unpriced."""

    def __init__(self, prices: UnitPrices | None) -> None:
        self.prices = prices

    def of(self, provider: str, model: str, at: datetime, *, input_tokens: int) -> UnitPrices | None:
        return self.prices


def lost(count: int = 1) -> Iterable[CallProblem]:
    """Calls whose response never arrives."""
    return [problem(CallFailure.TRANSIENT, lost=True)] * count
