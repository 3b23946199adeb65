"""One API call from its bytes to its response: parsed, perhaps failed, admitted, worked for, billed, answered."""

import hashlib
import json
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from worker.core.llm import CompletionUsage
from worker.embedded.llm_emulator.bill import Bill, BillLine
from worker.embedded.llm_emulator.chances import Chances
from worker.embedded.llm_emulator.clock import Clock
from worker.embedded.llm_emulator.effects import Delivers, Refuses
from worker.embedded.llm_emulator.fault_plan import FaultLine
from worker.embedded.llm_emulator.http import Response, Work
from worker.embedded.llm_emulator.judgements import understood
from worker.embedded.llm_emulator.model_rules import rules_of
from worker.embedded.llm_emulator.nouns import Api, Call, ErrorKind, HttpRequest, RefusedError, Spoken
from worker.embedded.llm_emulator.options import EmulatorOptions
from worker.embedded.llm_emulator.prefix_cache import PrefixCache, prompt_of
from worker.embedded.llm_emulator.rate_limits import Account
from worker.embedded.llm_emulator.replies import Model, Order
from worker.embedded.llm_emulator.responses import Arrival, completion_response, fault_response, refusal_response
from worker.embedded.llm_emulator.wire import Wire

CONTENTS_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A call as it came, for tests to look at."""

    api: Api
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class LlmService:
    """Everything that an account's calls have in common: bill, limits, cache, faults in line."""

    def __init__(self, options: EmulatorOptions, clock: Clock) -> None:
        self.bill = Bill()
        self.faults = FaultLine()
        self.requests = 0
        self.requests_by_status: Counter[int] = Counter()
        self.in_flight = 0
        self.in_flight_max = 0
        self.seen: deque[SeenRequest] = deque(maxlen=options.requests_kept)
        self._options = options
        self._clock = clock
        self._model = Model(options.opinion, options.tokenizer)
        self._cache = PrefixCache()
        self._accounts: dict[tuple[Api, str], Account] = {}
        self._times_seen: dict[bytes, int] = {}

    def take(self, request: HttpRequest, wire: Wire) -> Work:
        """Nothing a client sends raises."""
        arrival = Arrival(self.requests, wire, request)
        self.requests += 1
        self.seen.append(SeenRequest(wire.api, request.headers, request.body))
        try:
            return self._served(arrival)
        except RefusedError as refused:
            response = refusal_response(arrival, refused, self._clock.now())
            return Work(0.0, lambda: self._counted(response))

    def limits(self) -> Mapping[str, Any]:
        """Every limit that a call has met, as JSON shows it."""
        now_ns = self._clock.now_ns()
        return {
            f"{api.value} {model}": {
                limited.value: {"limit": s.limit, "remaining": s.remaining, "charged": s.charged}
                for limited, s in account.states(now_ns).items()
            }
            for (api, model), account in self._accounts.items()
        }

    def _served(self, arrival: Arrival) -> Work:
        wire, request = arrival.wire, arrival.request
        if wire.key(request) is None:
            raise RefusedError(ErrorKind.UNAUTHORIZED)
        call = wire.call(_json_object(request.body), request, partial(rules_of, own=self._options.models))
        order = self._order(arrival, call)
        match order.effect:
            case Refuses() as effect:
                response = fault_response(arrival, effect, self._limit_headers(wire, call), self._clock.now())
                return Work(0.0, lambda: self._counted(response))
            case Delivers(works=False) as effect:
                return Work(0.0, lambda: Response(0, {}, b"", effect.delivery))
            case _:
                return self._worked(arrival, order)

    def _order(self, arrival: Arrival, call: Call) -> Order:
        asked = understood(call.message, call.schema)
        chances = self._chances(arrival.request.body)
        was_in_line, fault = self.faults.take(asked.stage if asked else None)
        if not was_in_line:
            fault = self._options.faults.of(arrival.number, chances.fault)
        return Order(call, asked, chances, fault)

    def _worked(self, arrival: Arrival, order: Order) -> Work:
        call, options = order.call, self._options
        prompt = prompt_of(call, options.tokenizer)
        if prompt.tokens > rules_of(call.model, options.models).context_tokens_max:
            raise RefusedError(ErrorKind.INVALID, "prompt is too long", code="context_length_exceeded")
        now_ns = self._clock.now_ns()
        cached_tokens = self._cache.read(prompt.prefixes, now_ns / 1e9)
        self._admit(arrival.wire, call, prompt.tokens, cached_tokens, now_ns)
        spoken, usage = self._model.reply_to(
            order,
            arrival.wire,
            prompt=prompt,
            cached_tokens=cached_tokens,
            reasoning_tokens=round(options.reasoning_tokens.at(order.chances.reasoning)),
        )
        output_tokens = usage.output_tokens + usage.reasoning_tokens
        latency_s = options.latency_s.at(order.chances.latency) + options.output_token_s * output_tokens
        self._cache.write(prompt.prefixes, now_ns / 1e9, now_ns / 1e9 + latency_s)
        line = self._billed(arrival, order, usage)
        return Work(self._clock.real_s(latency_s), partial(self._answered, arrival, order, spoken, line))

    def _admit(self, wire: Wire, call: Call, input_tokens: int, cached_tokens: int, now_ns: int) -> None:
        exceeded = self._account(call).admit(
            input_tokens=input_tokens,
            cached_tokens=cached_tokens,
            output_tokens_max=call.output_tokens_max,
            now_ns=now_ns,
        )
        if exceeded is not None:
            refused = wire.exceeded(exceeded, call.model)
            waits = {} if exceeded.wait_s is None else wire.retry_headers(exceeded.wait_s)
            refused.headers = {**self._limit_headers(wire, call), **waits}
            raise refused

    def _billed(self, arrival: Arrival, order: Order, usage: CompletionUsage) -> BillLine:
        """From here on it costs, whether or not anybody waits for the answer."""
        line = BillLine(
            number=arrival.number,
            api=order.call.api,
            model=order.call.model,
            stage=order.stage,
            client_request_id=arrival.request.headers.get("x-client-request-id"),
            completion_id=arrival.wire.completion_id(arrival.number),
            usage=usage,
            fault=order.fault.value if order.fault else None,
        )
        self.bill.add(line)
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        return line

    def _answered(self, arrival: Arrival, order: Order, spoken: Spoken, line: BillLine) -> Response:
        self.in_flight -= 1
        output_tokens = line.usage.output_tokens + line.usage.reasoning_tokens
        self._account(order.call).produced(output_tokens, self._clock.now_ns())
        response = completion_response(
            arrival,
            order.call,
            spoken,
            line,
            order.effect,
            limits=self._limit_headers(arrival.wire, order.call),
            now=self._clock.now(),
            slow_s=self._clock.real_s(self._options.slow_body_s),
        )
        return self._counted(response)

    def _counted(self, response: Response) -> Response:
        self.requests_by_status[response.status] += 1
        return response

    def _account(self, call: Call) -> Account:
        key = call.api, call.model
        if key not in self._accounts:
            self._accounts[key] = Account(call.api, self._options.limits, self._clock.now_ns())
        return self._accounts[key]

    def _limit_headers(self, wire: Wire, call: Call) -> Mapping[str, str]:
        return wire.limit_headers(self._account(call).states(self._clock.now_ns()), self._clock.now())

    def _chances(self, body: bytes) -> Chances:
        content = hashlib.blake2b(body, digest_size=16).digest()
        nth = self._times_seen.pop(content, 0)
        self._times_seen[content] = nth + 1
        if len(self._times_seen) > CONTENTS_REMEMBERED:
            del self._times_seen[next(iter(self._times_seen))]
        return Chances.of(self._options.seed, content, nth)


def _json_object(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedError(ErrorKind.INVALID, "We could not parse the JSON body of your request.") from None
    if not isinstance(document, dict):
        raise RefusedError(ErrorKind.INVALID, "The body must be a JSON object.")
    return cast("Mapping[str, Any]", document)
