"""The LLM provider: one account that all workers share, what it bills, and how its calls end."""

import asyncio
import json
from dataclasses import asdict, dataclass, field
from decimal import Decimal

from tests.fakes.language_model import FakeModel
from tests.fakes.provider import FakeProvider, problem
from tests.fakes.rate_limited_account import RateLimitedAccount
from tests.guarantees.simulation.corpus import CURSED, FORBIDDEN, supports
from tests.guarantees.simulation.loop import OWNER, Process
from tests.guarantees.simulation.schedule import Schedule
from tests.guarantees.simulation.world import Guarantee, Outage, World
from tests.support.judging import KEY_POINTS, PRICES, count_words
from worker.core.buckets import SECOND_NS
from worker.core.calls import CallFailure, CallProblem
from worker.core.charging import Dimension
from worker.core.cost import cost_usd, stored_usd
from worker.core.llm import Completion, CompletionRequest, CompletionUsage, Finish
from worker.llm_ports import CallFailedError, Reply

DELIVERY_S = 0.3
LATENCY_S = 1.5
TOO_LATE_S = 40.0
"""Beyond any deadline of a call."""

CURSED_FAILS = 0.6
CURSED_IS_SPOILED = 0.7
OVERLOADED = 529
SPOILED = "I would rather talk about the weather."


@dataclass(eq=False)
class Billed:
    """A call that the provider served, and whether its response came into the hands of who asked."""

    call_id: str
    process: Process
    cost_usd: Decimal
    was_heard: bool = False


@dataclass(eq=False)
class Arriving:
    """A call on its way, and the future that its caller waits on."""

    call_id: str
    process: Process
    request: CompletionRequest
    reply: "asyncio.Future[Reply | CallProblem]"


def is_usable(raw: str) -> bool:
    """Whether a response is one that the judge can go on from."""
    body = json.loads(raw)
    return bool(body["finish"] == Finish.COMPLETE and body["text"] != SPOILED)


@dataclass
class Vendor:
    """The provider's side."""

    world: World
    schedule: Schedule
    outage: Outage = field(default_factory=Outage)
    bill: dict[str, Billed] = field(default_factory=dict)
    in_flight: dict[Process, int] = field(default_factory=dict)
    account: RateLimitedAccount = field(init=False)
    model: FakeModel = field(default_factory=lambda: FakeModel(KEY_POINTS, supports))

    def __post_init__(self) -> None:
        limiter = self.schedule.limiter
        own = {Dimension.REQUESTS: limiter.requests_per_minute, Dimension.TOKENS: limiter.tokens_per_minute}
        shared = {name: limit * (self.schedule.workers + 1) for name, limit in own.items() if limit is not None}
        self.account = RateLimitedAccount(self.schedule.rule.charge, shared)

    def arrive(self, call: Arriving) -> None:
        """Decides at once what will become of the call."""
        world, faults = self.world, self.schedule.model_faults
        if self.outage.is_on(world):
            self._fail_soon(call, problem(CallFailure.TRANSIENT, status=500))
            return
        refused_s = self.account.arrive(self._now_ns(), _input_tokens(call.request), call.request.output_tokens_max)
        if refused_s is not None:
            world.violate(Guarantee.LIMITER_KEEPS_THE_ACCOUNT, f"a call is refused, {refused_s:.3f} s too early")
            self._fail_soon(call, problem(CallFailure.THROTTLED, status=429))
        elif world.chance(CURSED_FAILS * (CURSED in call.request.question)):
            self._fail_soon(call, problem(CallFailure.TRANSIENT, status=500))
        elif world.chance(faults.throttled):
            self._fail_soon(call, problem(CallFailure.THROTTLED, status=429))
        elif world.chance(faults.failing):
            overloaded = world.chance(0.5)
            failure = CallFailure.OVERLOADED if overloaded else CallFailure.TRANSIENT
            self._fail_soon(call, problem(failure, status=OVERLOADED if overloaded else 500))
        elif world.chance(faults.reset):
            self._fail_soon(call, problem(CallFailure.TRANSIENT, lost=True))
        else:
            world.later(world.rng.random() * LATENCY_S, self._serve, call)

    def _fail_soon(self, call: Arriving, why: CallProblem) -> None:
        self.world.note("provider.failed", why.failure.value, why.response_lost)
        if why.failure in {CallFailure.THROTTLED, CallFailure.OVERLOADED}:
            # It was let in by the account, and is given back: the fault is of the day, not of our arithmetic.
            self.world.seen["provider.throttled"] += 1
        self.world.later(self.world.rng.random(), _deliver, call, why)

    def _serve(self, call: Arriving) -> None:
        """From here on it is billed, whoever still listens."""
        world, faults = self.world, self.schedule.model_faults
        completion = self._completion(call.request)
        usage = CompletionUsage(
            input_tokens=_input_tokens(call.request),
            output_tokens=world.rng.randint(1, call.request.output_tokens_max),
        )
        self.account.produce(self._now_ns(), usage.output_tokens)
        self.bill[call.call_id] = Billed(call.call_id, call.process, stored_usd(cost_usd(usage, PRICES)))
        world.note("provider.billed", call.request.stage.value, completion.finish.value)
        headers = self.account.headers(self._now_ns())
        body = {"finish": completion.finish, "text": completion.text, "usage": asdict(usage)}
        if not world.chance(faults.unheard):
            world.later(world.rng.random() * DELIVERY_S, _deliver, call, Reply(json.dumps(body), headers))
            return
        world.note("provider.unheard")
        if world.chance(0.5):
            world.later(DELIVERY_S, _deliver, call, problem(CallFailure.TRANSIENT, lost=True))
        else:
            world.later(TOO_LATE_S, _deliver, call, Reply(json.dumps(body), headers))

    def _completion(self, request: CompletionRequest) -> Completion:
        faults = self.schedule.model_faults
        honest = self.model.complete(request)
        self.model.requests.clear()
        if FORBIDDEN in request.question:
            return Completion(Finish.REFUSED, None, honest.usage, "")
        if self.world.chance(CURSED_IS_SPOILED if CURSED in request.question else faults.spoiled):
            return Completion(Finish.COMPLETE, SPOILED, honest.usage, "")
        if self.world.chance(faults.truncated):
            return Completion(Finish.TRUNCATED, (honest.text or "")[:20], honest.usage, "")
        return honest

    def _now_ns(self) -> int:
        return round(self.world.loop.now_s * SECOND_NS)


class SimulatedProvider(FakeProvider):
    """See `Provider`: one worker's side."""

    def __init__(self, world: World, vendor: Vendor, calls_in_flight_max: int) -> None:
        super().__init__(vendor.model)
        self._world = world
        self._vendor = vendor
        self._calls_in_flight_max = calls_in_flight_max

    async def complete(self, request: CompletionRequest, *, client_request_id: str, timeout_s: float) -> Reply:
        if self._world.is_over:
            raise asyncio.CancelledError
        process = OWNER.get()
        assert process is not None
        reply: asyncio.Future[Reply | CallProblem] = asyncio.get_running_loop().create_future()
        call = Arriving(client_request_id, process, request, reply)
        self._world.later(self._world.rng.random() * DELIVERY_S, self._vendor.arrive, call)
        self.in_flight += 1
        if self.in_flight > self._calls_in_flight_max:
            self._world.violate(Guarantee.LIMITER_KEEPS_THE_ACCOUNT, f"{self.in_flight} calls in flight")
        try:
            async with asyncio.timeout(timeout_s):
                came = await reply
        except TimeoutError:
            self._world.note("call.timed_out")
            raise CallFailedError(problem(CallFailure.TRANSIENT, lost=True)) from None
        finally:
            self.in_flight -= 1
        if isinstance(came, CallProblem):
            raise CallFailedError(came)
        self._vendor.bill[client_request_id].was_heard = True
        return came


def _deliver(call: Arriving, what: Reply | CallProblem) -> None:
    if not call.reply.done():
        call.reply.set_result(what)


def _input_tokens(request: CompletionRequest) -> int:
    """As many as the worker estimates, without the margin for framing."""
    return _shared_tokens(request) + count_words(request.context) + count_words(request.question)


def _shared_tokens(request: CompletionRequest) -> int:
    name = request.schema_name
    if name not in _SHARED_TOKENS:
        _SHARED_TOKENS[name] = count_words(request.instructions) + count_words(json.dumps(request.schema))
    return _SHARED_TOKENS[name]


_SHARED_TOKENS: dict[str, int] = {}
