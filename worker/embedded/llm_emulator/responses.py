"""Responses as bytes: completions and errors in the API's words, bent by a fault where there is one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from worker.embedded.llm_emulator.bill import BillLine
from worker.embedded.llm_emulator.clock import http_date
from worker.embedded.llm_emulator.effects import (
    HTML,
    IN_TWO_SECONDS,
    Delivers,
    Delivery,
    Effect,
    Miscounts,
    Refuses,
    Replaces,
    Says,
)
from worker.embedded.llm_emulator.http import Response
from worker.embedded.llm_emulator.nouns import Call, HttpRequest, RefusedError, Spoken
from worker.embedded.llm_emulator.wire import Wire


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request and where it goes."""

    number: int
    wire: Wire
    request: HttpRequest

    @property
    def request_id(self) -> str:
        return f"req_{self.number:024d}"


def completion_response(
    arrival: Arrival,
    call: Call,
    spoken: Spoken,
    line: BillLine,
    effect: Effect | None,
    *,
    limits: Mapping[str, str],
    now: datetime,
    slow_s: float,
) -> Response:
    """Marks the line delivered when, and only when, the API's own response arrives whole."""
    completion = arrival.wire.completion(call, spoken, line.usage, line.completion_id, now)
    if isinstance(effect, Miscounts):
        completion["usage"] = effect.usage
        if effect.is_absent:
            del completion["usage"]
    status = effect.status if isinstance(effect, Says) else 200
    response = _response(arrival, status, _encoded(completion), limits, now)
    if isinstance(effect, Replaces):
        headers = {**response.headers, "content-type": effect.content_type}
        return replace(response, body=effect.body(response.body), headers=headers)
    delivery = effect.delivery if isinstance(effect, Delivers) else Delivery.WHOLE
    return replace(response, delivery=delivery, slow_s=slow_s, on_delivery=partial(setattr, line, "delivered"))


def refusal_response(arrival: Arrival, refused: RefusedError, now: datetime) -> Response:
    status, body = arrival.wire.error(refused, arrival.request_id, arrival.wire.key(arrival.request))
    return _response(arrival, status, _encoded(body), refused.headers, now)


def fault_response(arrival: Arrival, effect: Refuses, limits: Mapping[str, str], now: datetime) -> Response:
    headers = dict(limits)
    if effect.retry_after == IN_TWO_SECONDS:
        headers["retry-after"] = http_date(now + timedelta(seconds=2))
    elif effect.retry_after is not None:
        headers["retry-after"] = effect.retry_after
    refused = RefusedError(effect.kind)
    refused.headers = headers
    response = refusal_response(arrival, refused, now)
    if effect.is_html:
        response = replace(response, headers={**response.headers, "content-type": "text/html"}, body=HTML)
    return response if effect.status is None else replace(response, status=effect.status)


def _response(arrival: Arrival, status: int, body: bytes, headers: Mapping[str, str], now: datetime) -> Response:
    common = {"date": http_date(now), "content-type": "application/json"}
    return Response(status, {**common, **arrival.wire.headers(arrival.request_id), **headers}, body)


def _encoded(document: object) -> bytes:
    """As UTF-8, or, where a lone surrogate has none, escaped."""
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":")).encode()
