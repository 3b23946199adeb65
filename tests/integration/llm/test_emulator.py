"""The emulator as a service: limits over real time, the bill over HTTP, seeds, calls held back, hostile clients."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from tests.support.conditions import until
from tests.support.llm import DIALECTS, OPENAI, Dialect, decompose_request, harbour_answer, provider_on, score_request
from worker.core.charging import Dimension
from worker.core.ratelimit_headers import read_headers
from worker.embedded.llm_emulator.chances import Lognormal
from worker.embedded.llm_emulator.emulator import LlmEmulator
from worker.embedded.llm_emulator.fault_plan import FaultPlan
from worker.embedded.llm_emulator.faults import Fault
from worker.embedded.llm_emulator.options import EmulatorOptions
from worker.embedded.llm_emulator.rate_limits import RateLimits
from worker.llm_ports import CallFailedError, Provider

HELLO = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "hello"}]}
KEY = {"authorization": "Bearer k"}


@pytest.fixture
async def emulator() -> AsyncIterator[LlmEmulator]:
    async with LlmEmulator() as running:
        yield running


@pytest.fixture
async def http(emulator: LlmEmulator) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=emulator.anthropic_base_url, trust_env=False) as client:
        yield client


async def outcome(provider: Provider, answer_id: str = "a") -> Mapping[str, str] | CallFailedError:
    """The headers of the response, or the failure."""
    try:
        reply = await provider.complete(
            score_request(harbour_answer(answer_id)), client_request_id=answer_id, timeout_s=30
        )
    except CallFailedError as error:
        return error
    return reply.headers


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.provider)
async def test_requests_past_the_limit_are_refused_and_told_when_to_come_back(dialect: Dialect) -> None:
    now_s = 0.0
    options = EmulatorOptions(limits=RateLimits(requests=3), time_scale=20)
    async with (
        LlmEmulator(options, monotonic_s=lambda: now_s) as emulator,
        provider_on(emulator, dialect) as provider,
    ):
        outcomes = [await outcome(provider) for _ in range(4)]
        assert [isinstance(each, CallFailedError) for each in outcomes] == [False, False, False, True]
        refused = outcomes[3]
        assert isinstance(refused, CallFailedError)
        # One request comes back in a third of a minute: in a second at twenty times the speed.
        assert read_headers(refused.headers, wall_s=0).retry_after_s == 20
        now_s = 0.99
        assert isinstance(await outcome(provider), CallFailedError)
        now_s = 1.0
        assert not isinstance(await outcome(provider), CallFailedError)
        assert len(emulator.bill.lines) == 4
        assert emulator.requests_by_status == {200: 4, 429: 2}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.provider)
async def test_the_worker_reads_the_headers_as_the_emulator_means_them(dialect: Dialect) -> None:
    limits = RateLimits(requests=100, tokens=5_000, input_tokens=5_000, output_tokens=6_000)
    async with (
        LlmEmulator(EmulatorOptions(limits=limits), monotonic_s=lambda: 0.0) as emulator,
        provider_on(emulator, dialect) as provider,
    ):
        headers = await outcome(provider)
        assert not isinstance(headers, CallFailedError)
        told = read_headers(headers, wall_s=0).statuses
        (states,) = emulator.limits().values()
        (line,) = emulator.bill.lines
    assert told[Dimension.REQUESTS].remaining == 99
    assert told[Dimension.REQUESTS].reset_s == pytest.approx(0.6, abs=0.4)
    if dialect is OPENAI:
        charged = line.usage.input_tokens + score_request().output_tokens_max
        assert told[Dimension.TOKENS].limit == 5_000
        assert told[Dimension.TOKENS].remaining == 5_000 - charged
        assert states["tokens"]["charged"] == charged
    else:
        assert told[Dimension.INPUT_TOKENS].remaining == 5_000 - line.usage.input_tokens
        assert told[Dimension.OUTPUT_TOKENS].remaining == 6_000 - line.usage.output_tokens
        assert states["output_tokens"]["charged"] == line.usage.output_tokens


async def test_models_have_limits_of_their_own() -> None:
    options = EmulatorOptions(limits=RateLimits(requests=1))
    async with (
        LlmEmulator(options) as emulator,
        provider_on(emulator, OPENAI, model="gpt-4.1") as one,
        provider_on(emulator, OPENAI, model="gpt-4o") as other,
    ):
        assert not isinstance(await outcome(one), CallFailedError)
        assert not isinstance(await outcome(other), CallFailedError)
        assert isinstance(await outcome(one), CallFailedError)


async def faults_of(seed: int, order: list[int]) -> dict[str, str | None]:
    chances = {Fault.FENCED: 0.3, Fault.WRONG_IDS: 0.3}
    async with (
        LlmEmulator(EmulatorOptions(seed=seed, faults=FaultPlan(chances))) as emulator,
        provider_on(emulator, OPENAI) as provider,
    ):
        for number in order:
            await outcome(provider, f"a-{number}")
        return {line.client_request_id or "": line.fault for line in emulator.bill.lines}


async def test_a_seed_brings_the_same_faults_in_whatever_order_requests_come() -> None:
    forwards = await faults_of(1, list(range(20)))
    assert forwards == await faults_of(1, list(range(19, -1, -1)))
    assert forwards != await faults_of(2, list(range(20)))
    assert len(set(forwards.values())) == 3


async def test_latencies_differ_from_call_to_call_and_are_those_of_the_seed() -> None:
    options = EmulatorOptions(latency_s=Lognormal(2, 0.5), time_scale=1_000)
    async with LlmEmulator(options) as emulator, provider_on(emulator, OPENAI) as provider:
        assert not isinstance(await outcome(provider), CallFailedError)
        assert emulator.in_flight == 0


async def test_a_fault_has_its_request_number(http: httpx2.AsyncClient) -> None:
    options = EmulatorOptions(faults=FaultPlan(at={1: Fault.SERVER_ERROR}))
    async with LlmEmulator(options) as emulator:
        url = f"{emulator.openai_base_url}/chat/completions"
        statuses = [(await http.post(url, json=HELLO, headers=KEY)).status_code for _ in range(3)]
    assert statuses == [200, 500, 200]


async def test_the_bill_is_read_and_cleared_over_http(emulator: LlmEmulator, http: httpx2.AsyncClient) -> None:
    headers = KEY | {"x-client-request-id": "mine"}
    await http.post("/v1/chat/completions", json=HELLO, headers=headers)
    bill = (await http.get("/bill")).json()
    (line,) = bill["lines"]
    assert (line["client_request_id"], line["api"], line["delivered"], line["stage"]) == ("mine", "openai", True, None)
    assert line["input_tokens"] == bill["totals"]["input_tokens"] == emulator.bill.totals.input_tokens > 0
    assert (await http.delete("/bill")).status_code == 200
    assert (await http.get("/bill")).json()["totals"]["lines"] == 0


async def test_faults_are_ordered_over_http(http: httpx2.AsyncClient) -> None:
    assert (await http.post("/faults", json={"faults": ["rate_limited_1", None]})).status_code == 200
    refused = await http.post("/v1/chat/completions", json=HELLO, headers=KEY)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert (await http.post("/v1/chat/completions", json=HELLO, headers=KEY)).status_code == 200


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"faults": ["nonsense"]}', '{"faults": [], "stage": "nonsense"}'])
async def test_orders_that_make_no_sense_are_refused(http: httpx2.AsyncClient, body: str) -> None:
    assert (await http.post("/faults", content=body)).status_code == 400


async def test_calls_are_held_back_and_released_over_http(emulator: LlmEmulator, http: httpx2.AsyncClient) -> None:
    await http.post("/hold")
    async with asyncio.TaskGroup() as group:
        call = group.create_task(http.post("/v1/chat/completions", json=HELLO, headers=KEY))
        await until(lambda: emulator.in_flight == 1)
        status = (await http.get("/status")).json()
        assert (status["in_flight"], status["is_holding"], emulator.bill.lines[0].delivered) == (1, True, False)
        await http.post("/release")
        assert (await call).status_code == 200
    assert emulator.bill.lines[0].delivered


BAD_CALLS: list[tuple[str, dict[str, str], Any, int]] = [
    ("/v1/chat/completions", {}, HELLO, 401),
    ("/v1/chat/completions", KEY, b"{", 400),
    ("/v1/chat/completions", KEY, b"[" * 100_000, 400),
    ("/v1/chat/completions", KEY, [], 400),
    ("/v1/chat/completions", KEY, {}, 400),
    ("/v1/chat/completions", KEY, {"model": "gpt-4.1"}, 400),
    ("/v1/chat/completions", KEY, {"model": "gpt-4.1", "messages": [1]}, 400),
    ("/v1/chat/completions", KEY, HELLO | {"max_tokens": 0}, 400),
    ("/v1/chat/completions", KEY, HELLO | {"max_tokens": 10**9}, 400),
    ("/v1/chat/completions", KEY, HELLO | {"stream": True}, 400),
    ("/v1/chat/completions", KEY, HELLO | {"model": "no-such-model"}, 404),
    ("/v1/chat/completions", KEY, HELLO | {"model": "gpt-5", "temperature": 0}, 400),
    ("/v1/messages", {"x-api-key": "k"}, {}, 400),
    ("/v1/messages", {"x-api-key": "k", "anthropic-version": "2023-06-01"}, HELLO, 400),
    ("/nothing", KEY, HELLO, 404),
]


@pytest.mark.parametrize(("path", "headers", "body", "status"), BAD_CALLS)
async def test_what_the_apis_would_refuse_is_refused_and_not_billed(
    http: httpx2.AsyncClient, path: str, headers: dict[str, str], body: Any, status: int
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = await http.post(path, content=content, headers=headers)
    assert response.status_code == status
    assert response.json()["error"]["message"]
    assert (await http.get("/bill")).json()["lines"] == []


async def test_a_client_that_speaks_no_http_is_sent_away(emulator: LlmEmulator) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", emulator.port)
    writer.write(b"\x16\x03\x01 hello\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 400")
    writer.close()
    await writer.wait_closed()


async def test_the_openai_sdk_takes_every_response_for_a_chat_completion(emulator: LlmEmulator) -> None:
    request = decompose_request()
    async with openai.AsyncOpenAI(api_key="k", base_url=emulator.openai_base_url, max_retries=0) as client:
        completion = await client.chat.completions.create(
            model="gpt-5-mini",
            messages=[
                {"role": "developer", "content": request.instructions},
                {"role": "user", "content": [{"type": "text", "text": request.question}]},
            ],
        )
    assert type(completion).model_validate(completion.model_dump(), strict=True) == completion
    assert completion.choices[0].finish_reason == "stop"
    assert completion.model_extra == {}


async def test_the_anthropic_sdk_takes_every_response_for_a_message(emulator: LlmEmulator) -> None:
    request = decompose_request()
    async with anthropic.AsyncAnthropic(api_key="k", base_url=emulator.anthropic_base_url, max_retries=0) as client:
        message = await client.messages.create(
            model="claude-haiku-4-5",
            max_tokens=500,
            system=request.instructions,
            messages=[{"role": "user", "content": request.question}],
        )
    assert type(message).model_validate(message.model_dump(), strict=True) == message
    assert message.stop_reason == "end_turn"
    assert message.model_extra == {}


async def test_five_hundred_connections_are_served_at_once(emulator: LlmEmulator) -> None:
    body = json.dumps(HELLO).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\napi-key: k\r\ncontent-length: {len(body)}\r\n\r\n"
    emulator.hold()
    connections = [await asyncio.open_connection("127.0.0.1", emulator.port) for _ in range(500)]
    for _, writer in connections:
        writer.write(head.encode() + body)
    await until(lambda: emulator.in_flight == 500)
    emulator.release()
    for reader, writer in connections:
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.close()
        await writer.wait_closed()
    assert [line.delivered for line in emulator.bill.lines] == [True] * 500


async def test_a_response_that_its_client_threw_away_unread_was_not_delivered(emulator: LlmEmulator) -> None:
    body = json.dumps(HELLO).encode()
    with socket.create_connection(("127.0.0.1", emulator.port)) as client:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\napi-key: k\r\ncontent-length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        await until(lambda: emulator.bill.lines and emulator.bill.lines[0].delivered)
    # Closed with bytes to read, which the other side learns as a reset.
    await until(lambda: not emulator.bill.lines[0].delivered)


async def test_leaving_ends_every_connection_at_once() -> None:
    async with LlmEmulator() as emulator:
        emulator.next_faults(Fault.SILENCE)
        async with httpx2.AsyncClient(trust_env=False) as client, asyncio.TaskGroup() as group:
            call = group.create_task(_raises(client, f"{emulator.openai_base_url}/chat/completions"))
            await until(lambda: emulator.in_flight_max == 1)
            await emulator.__aexit__()
            await call
            assert emulator.connections == 0


async def _raises(client: httpx2.AsyncClient, url: str) -> None:
    with pytest.raises(httpx2.TransportError):
        await client.post(url, json=HELLO, headers=KEY, timeout=30)
