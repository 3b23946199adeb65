"""What both providers promise, through their own SDKs and real sockets, whatever the other side does."""

import asyncio
import gc
import json
import logging
import re
import socket
import traceback
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest
import uvloop
from pydantic import SecretStr

from tests.support.conditions import until
from tests.support.llm import (
    ANTHROPIC,
    API_KEY,
    DIALECTS,
    OPENAI,
    TIMEOUT_S,
    Dialect,
    decompose_request,
    harbour_answer,
    provider_on,
    score_request,
)
from worker.adapters.llm import transport
from worker.adapters.llm.open_provider import open_provider
from worker.core.calls import CallFailure, CallProblem
from worker.core.llm import Completion, CompletionRequest, Finish, UsageSource
from worker.embedded.llm_emulator.chances import Fixed
from worker.embedded.llm_emulator.emulator import LlmEmulator
from worker.embedded.llm_emulator.fault_plan import FaultPlan
from worker.embedded.llm_emulator.faults import Fault
from worker.embedded.llm_emulator.model_rules import ModelRules
from worker.embedded.llm_emulator.options import EmulatorOptions
from worker.embedded.llm_emulator.rate_limits import RateLimits
from worker.errors import FatalError
from worker.llm_ports import CallFailedError, Provider, Reply

REFUSALS: Mapping[Fault, CallFailure] = {
    Fault.RATE_LIMITED: CallFailure.THROTTLED,
    Fault.RATE_LIMITED_0: CallFailure.THROTTLED,
    Fault.RATE_LIMITED_1: CallFailure.THROTTLED,
    Fault.RATE_LIMITED_130: CallFailure.THROTTLED,
    Fault.RATE_LIMITED_DATE: CallFailure.THROTTLED,
    Fault.RATE_LIMITED_GARBAGE: CallFailure.THROTTLED,
    Fault.INSUFFICIENT_QUOTA: CallFailure.QUOTA,
    Fault.BILLING: CallFailure.QUOTA,
    Fault.SERVER_ERROR: CallFailure.TRANSIENT,
    Fault.BAD_GATEWAY_HTML: CallFailure.TRANSIENT,
    Fault.UNAVAILABLE: CallFailure.OVERLOADED,
    Fault.OVERLOADED: CallFailure.OVERLOADED,
    Fault.OVERLOADED_IN_200: CallFailure.OVERLOADED,
    Fault.REQUEST_TIMEOUT: CallFailure.TRANSIENT,
    Fault.UNAUTHORIZED: CallFailure.DENIED,
    Fault.FORBIDDEN: CallFailure.DENIED,
    Fault.NOT_FOUND: CallFailure.DENIED,
    Fault.REDIRECT: CallFailure.DENIED,
    Fault.TOO_LARGE: CallFailure.REJECTED,
    Fault.INVALID: CallFailure.REJECTED,
    Fault.CONTENT_FILTER_400: CallFailure.REFUSED,
}
"""Nothing was done, and nothing will be billed."""

LOST = {
    Fault.RESET_BEFORE_WORK: 0,
    Fault.RESET_AFTER_WORK: 1,
    Fault.SILENCE: 1,
    Fault.TRUNCATED_BODY: 1,
    Fault.CUT_JSON: 1,
    Fault.EMPTY_BODY: 1,
    Fault.HTML_BODY: 1,
    Fault.JSON_ARRAY_BODY: 1,
    Fault.NAN_BODY: 1,
}
"""No response that can be read, and how many lines of the bill it leaves behind."""

FINISHES: Mapping[Fault, tuple[Finish, Finish]] = {
    # OpenAI, Anthropic: a word that an API does not have is unknown to its adapter
    Fault.FINISH_LENGTH: (Finish.TRUNCATED, Finish.UNKNOWN),
    Fault.FINISH_MAX_TOKENS: (Finish.UNKNOWN, Finish.TRUNCATED),
    Fault.FINISH_CONTEXT_WINDOW: (Finish.UNKNOWN, Finish.TRUNCATED),
    Fault.FINISH_CONTENT_FILTER: (Finish.REFUSED, Finish.UNKNOWN),
    Fault.FINISH_REFUSAL: (Finish.REFUSED, Finish.REFUSED),
    Fault.FINISH_TOOL_CALLS: (Finish.UNKNOWN, Finish.UNKNOWN),
    Fault.FINISH_TOOL_USE: (Finish.UNKNOWN, Finish.UNKNOWN),
    Fault.FINISH_FUNCTION_CALL: (Finish.UNKNOWN, Finish.UNKNOWN),
    Fault.FINISH_PAUSE_TURN: (Finish.UNKNOWN, Finish.UNKNOWN),
    Fault.FINISH_STOP_SEQUENCE: (Finish.UNKNOWN, Finish.COMPLETE),
    Fault.FINISH_UNHEARD_OF: (Finish.UNKNOWN, Finish.UNKNOWN),
    Fault.FINISH_NULL: (Finish.UNKNOWN, Finish.UNKNOWN),
    Fault.REFUSAL_MESSAGE: (Finish.REFUSED, Finish.REFUSED),
    Fault.COMPLETION_IN_400: (Finish.REFUSED, Finish.UNKNOWN),
    Fault.CONTENT_NULL: (Finish.UNKNOWN, Finish.UNKNOWN),
    Fault.NO_CHOICES: (Finish.UNKNOWN, Finish.UNKNOWN),
}
USAGE_FAULTS = {Fault.USAGE_MISSING, Fault.USAGE_NULL, Fault.USAGE_ZERO, Fault.USAGE_SENSELESS}
WHOLE = set(Fault) - REFUSALS.keys() - LOST.keys() - FINISHES.keys() - USAGE_FAULTS
"""The message may be spoiled, but it is the message: reading it is another's task."""


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.provider)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    chosen: Dialect = request.param
    return chosen


@pytest.fixture
async def emulator() -> AsyncIterator[LlmEmulator]:
    async with LlmEmulator(EmulatorOptions(slow_body_s=0.1)) as running:
        yield running


@pytest.fixture
async def provider(emulator: LlmEmulator, dialect: Dialect) -> AsyncIterator[Provider]:
    async with provider_on(emulator, dialect) as opened:
        yield opened


async def replied(
    provider: Provider,
    request: CompletionRequest | None = None,
    *,
    client_request_id: str = "c-1",
    timeout_s: float = TIMEOUT_S,
) -> Reply:
    return await provider.complete(request or score_request(), client_request_id=client_request_id, timeout_s=timeout_s)


async def completed(
    provider: Provider, request: CompletionRequest | None = None, *, client_request_id: str = "c-1"
) -> Completion:
    request = request or score_request()
    return provider.read((await replied(provider, request, client_request_id=client_request_id)).raw, request)


async def problem_of(
    provider: Provider, request: CompletionRequest | None = None, *, timeout_s: float = TIMEOUT_S
) -> CallProblem:
    with pytest.raises(CallFailedError) as raised:
        await replied(provider, request, timeout_s=timeout_s)
    return raised.value.problem


def bodies(emulator: LlmEmulator) -> list[dict[str, object]]:
    return [request.json for request in emulator.requests]


# What is sent and what comes back


async def test_a_whole_call_is_one_line_of_the_bill_with_the_same_usage(
    provider: Provider, emulator: LlmEmulator
) -> None:
    completion = await completed(provider, client_request_id="call-7")
    (line,) = emulator.bill.lines
    assert completion.finish is Finish.COMPLETE
    assert json.loads(completion.text or "")["rows"]
    assert completion.usage == line.usage
    assert completion.usage.source is UsageSource.PROVIDER
    assert completion.provider_request_id == line.completion_id
    assert (line.client_request_id, line.delivered) == ("call-7", True)


async def test_openai_is_asked_in_its_own_words(emulator: LlmEmulator) -> None:
    request = score_request()
    async with provider_on(emulator, OPENAI) as provider:
        await replied(provider, request)
    (body,) = bodies(emulator)
    assert body == {
        "model": "gpt-4.1-mini",
        "messages": [
            {"role": "system", "content": request.instructions},
            {"role": "user", "content": f"{request.context}\n\n{request.question}"},
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": request.schema_name, "strict": True, "schema": request.schema},
        },
        "temperature": 0,
        "max_tokens": request.output_tokens_max,
    }


async def test_anthropic_is_asked_in_its_own_words(emulator: LlmEmulator) -> None:
    request = score_request()
    async with provider_on(emulator, ANTHROPIC) as provider:
        await replied(provider, request)
    (body,) = bodies(emulator)
    assert body == {
        "model": "claude-haiku-4-5",
        "system": [{"type": "text", "text": request.instructions, "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": request.context}, {"type": "text", "text": request.question}],
            }
        ],
        "output_config": {"format": {"type": "json_schema", "schema": request.schema}},
        "max_tokens": request.output_tokens_max,
    }
    assert emulator.requests[0].headers["anthropic-version"]


async def test_a_request_without_sources_sends_no_empty_text(provider: Provider) -> None:
    request = decompose_request()
    assert request.context == ""
    assert (await completed(provider, request)).finish is Finish.COMPLETE


async def test_a_reply_carries_the_headers_that_tell_of_limits(dialect: Dialect) -> None:
    limits = RateLimits(requests=100, tokens=50_000, input_tokens=50_000, output_tokens=50_000)
    async with LlmEmulator(EmulatorOptions(limits=limits)) as emulator, provider_on(emulator, dialect) as provider:
        headers = (await replied(provider)).headers
    named = {"openai": "x-ratelimit-remaining-requests", "anthropic": "anthropic-ratelimit-requests-remaining"}
    assert headers[named[dialect.provider]] == "99"


async def test_a_refusal_carries_its_headers_too(provider: Provider, emulator: LlmEmulator) -> None:
    emulator.next_faults(Fault.RATE_LIMITED_130)
    with pytest.raises(CallFailedError) as raised:
        await replied(provider)
    assert (raised.value.headers["retry-after"], raised.value.problem.retry_after) == ("130", "130")


async def test_every_script_survives_the_way_there_and_back(provider: Provider) -> None:
    text = "ἁρμονία 调和 हार्मनी 😀 e\u0301 \u202eRTL hat zwölf Häfen."
    request = decompose_request(harbour_answer(sentences=0))
    sent = request.question.replace('"answer":""', f'"answer":"{text}"')
    completion = await completed(provider, replace(request, question=sent))
    assert text.removesuffix(".") in (completion.text or "")


async def test_a_journaled_body_reads_as_the_live_one_did(provider: Provider) -> None:
    request = score_request()
    raw = (await replied(provider, request)).raw
    assert provider.read(raw, request) == provider.read(raw, request)


# Faults


def test_every_fault_has_its_expectation_here() -> None:
    assert len(REFUSALS) + len(LOST) + len(FINISHES) + len(USAGE_FAULTS) + len(WHOLE) == len(Fault)


@pytest.mark.parametrize(("fault", "failure"), REFUSALS.items())
async def test_a_refused_call_says_whose_fault_it_is_and_was_not_billed(
    provider: Provider, emulator: LlmEmulator, fault: Fault, failure: CallFailure
) -> None:
    emulator.next_faults(fault)
    problem = await problem_of(provider)
    assert (problem.failure, problem.response_lost) == (failure, False)
    assert problem.status is not None
    assert emulator.bill.lines == ()


@pytest.mark.parametrize("fault", LOST)
async def test_a_response_that_cannot_be_read_may_have_been_billed(
    provider: Provider, emulator: LlmEmulator, fault: Fault
) -> None:
    emulator.next_faults(fault)
    problem = await problem_of(provider, timeout_s=0.5 if fault is Fault.SILENCE else TIMEOUT_S)
    assert (problem.failure, problem.response_lost) == (CallFailure.TRANSIENT, True)
    assert [line.delivered for line in emulator.bill.lines] == [False] * LOST[fault]


@pytest.mark.parametrize(("fault", "finishes"), FINISHES.items())
async def test_how_a_completion_ended_is_told_in_our_words(
    provider: Provider, emulator: LlmEmulator, fault: Fault, finishes: tuple[Finish, Finish]
) -> None:
    emulator.next_faults(fault)
    completion = await completed(provider)
    assert completion.finish is finishes[provider.name == "anthropic"]
    assert completion.usage == emulator.bill.lines[0].usage


@pytest.mark.parametrize("fault", sorted(WHOLE))
async def test_a_spoiled_message_is_a_message_and_is_paid_for(
    provider: Provider, emulator: LlmEmulator, fault: Fault
) -> None:
    emulator.next_faults(fault)
    completion = await completed(provider)
    assert completion.finish is Finish.COMPLETE
    assert completion.text is not None
    assert (completion.usage, emulator.bill.lines[0].delivered) == (emulator.bill.lines[0].usage, True)


@pytest.mark.parametrize("fault", sorted(USAGE_FAULTS))
async def test_a_response_without_usage_is_counted_by_ourselves_and_says_so(
    provider: Provider, emulator: LlmEmulator, fault: Fault
) -> None:
    """inspect_ai#4694, sglang#954: usage 0 or absent is not a free call."""
    emulator.next_faults(fault)
    usage = (await completed(provider)).usage
    billed = emulator.bill.lines[0].usage
    assert usage.source is UsageSource.ESTIMATED
    assert usage.output_tokens == billed.output_tokens
    assert usage.input_tokens == pytest.approx(billed.input_tokens, rel=0.05)


@pytest.mark.parametrize(
    "fault", [Fault.RATE_LIMITED, Fault.SERVER_ERROR, Fault.OVERLOADED, Fault.REQUEST_TIMEOUT, Fault.RESET_AFTER_WORK]
)
async def test_a_call_is_made_once_whatever_happens(provider: Provider, emulator: LlmEmulator, fault: Fault) -> None:
    """openai-python#3828: an SDK's own retries triple a timeout and hide billed calls."""
    emulator.next_faults(fault)
    await problem_of(provider)
    assert len(emulator.requests) == 1


async def test_reasoning_that_uses_up_the_cap_is_a_truncation_not_an_empty_reply(dialect: Dialect) -> None:
    """browser-use#5148: finish_reason is looked at before the content, which is null."""
    options = EmulatorOptions(reasoning_tokens=Fixed(10**6))
    async with LlmEmulator(options) as emulator, provider_on(emulator, dialect) as provider:
        completion = await completed(provider)
        assert (completion.finish, completion.text) == (Finish.TRUNCATED, None)
        assert completion.usage.reasoning_tokens == score_request().output_tokens_max
        assert completion.usage == emulator.bill.lines[0].usage


async def test_a_content_filter_under_400_is_a_refusal_with_its_code(emulator: LlmEmulator) -> None:
    """experiential#967: Azure filters a prompt under HTTP 400."""
    emulator.next_faults(Fault.CONTENT_FILTER_400)
    async with provider_on(emulator, OPENAI) as provider:
        problem = await problem_of(provider)
    assert problem.detail == "HTTP 400 (ResponsibleAIPolicyViolation, content_filter)"
    assert "innererror" in (problem.raw or "")


async def test_a_body_without_end_is_given_up(
    provider: Provider, emulator: LlmEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "BODY_BYTES_MAX", 1_000_000)
    emulator.next_faults(Fault.HUGE)
    problem = await problem_of(provider)
    assert problem.response_lost
    assert (await completed(provider)).finish is Finish.COMPLETE


async def test_two_megabytes_arrive_whole(provider: Provider, emulator: LlmEmulator) -> None:
    emulator.next_faults(Fault.HUGE)
    assert len((await completed(provider)).text or "") > 2_000_000


async def test_what_is_billed_is_what_was_told_under_any_mix_of_faults(dialect: Dialect) -> None:
    chances = dict.fromkeys(Fault, 0.9 / len(Fault)) | {Fault.HUGE: 0.0, Fault.DEEP: 0.0}
    options = EmulatorOptions(seed=7, faults=FaultPlan(chances), slow_body_s=0.01)
    whole: dict[str, Completion] = {}
    lost: set[str] = set()
    async with LlmEmulator(options) as emulator, provider_on(emulator, dialect) as provider:
        for number in range(150):
            request, call = score_request(harbour_answer(f"a-{number}")), f"call-{number}"
            try:
                reply = await provider.complete(request, client_request_id=call, timeout_s=0.5)
            except CallFailedError as error:
                lost |= {call} if error.problem.response_lost else set()
            else:
                whole[call] = provider.read(reply.raw, request)
        lines = {line.client_request_id: line for line in emulator.bill.lines}
    assert len(lines) == len(emulator.bill.lines)
    assert {call for call, line in lines.items() if line.delivered} == set(whole)
    assert {call for call, line in lines.items() if not line.delivered} <= lost
    assert len(lost) > 5
    for call, completion in whole.items():
        if completion.usage.source is UsageSource.PROVIDER:
            assert completion.usage == lines[call].usage


# Parameters that a model refuses


DOWNGRADES = [
    (OPENAI, ModelRules(always_reasons=True), {"temperature", "max_tokens"}, {"max_completion_tokens"}),
    (OPENAI, ModelRules(takes_structured_output=False), {"response_format"}, set()),
    (ANTHROPIC, ModelRules(takes_structured_output=False), {"output_config"}, set()),
]


@pytest.mark.parametrize(("dialect", "rules", "without", "instead"), DOWNGRADES)
async def test_a_parameter_that_was_refused_is_left_out_from_then_on(
    dialect: Dialect, rules: ModelRules, without: set[str], instead: set[str]
) -> None:
    """mem0#5233, glass#227: temperature and max_tokens on models that reason."""
    options = EmulatorOptions(models={"a-deployment": rules})
    async with (
        LlmEmulator(options) as emulator,
        provider_on(emulator, dialect, model="a-deployment") as provider,
    ):
        first = await completed(provider)
        sent = len(emulator.requests)
        second = await completed(provider)
        assert first.finish is second.finish is Finish.COMPLETE
        assert len(emulator.requests) == sent + 1
        assert without <= bodies(emulator)[0].keys()
        last = bodies(emulator)[-1].keys()
        assert without.isdisjoint(last)
        assert instead <= last
        assert len(emulator.bill.lines) == 2


async def test_a_model_without_a_prompt_cache_is_asked_without_one() -> None:
    options = EmulatorOptions(models={"cacheless": ModelRules(takes_cache_control=False)})
    async with (
        LlmEmulator(options) as emulator,
        provider_on(emulator, ANTHROPIC, model="cacheless") as provider,
    ):
        assert (await completed(provider)).finish is Finish.COMPLETE
        assert "cache_control" in emulator.requests[0].body.decode()
        assert "cache_control" not in emulator.requests[1].body.decode()


async def test_without_structured_output_the_schema_is_said_in_words(dialect: Dialect) -> None:
    options = EmulatorOptions(models={"plain": ModelRules(takes_structured_output=False)})
    async with (
        LlmEmulator(options) as emulator,
        provider_on(emulator, dialect, model="plain") as provider,
    ):
        assert json.loads((await completed(provider)).text or "")["rows"]
        assert '\\"additionalProperties\\":false' in emulator.requests[-1].body.decode()


async def test_calls_that_are_refused_together_all_come_through() -> None:
    options = EmulatorOptions(models={"a-deployment": ModelRules(always_reasons=True)})
    async with (
        LlmEmulator(options) as emulator,
        provider_on(emulator, OPENAI, model="a-deployment") as provider,
    ):
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(completed(provider)) for _ in range(20)]
        assert {call.result().finish for call in calls} == {Finish.COMPLETE}
        assert len(emulator.bill.lines) == 20


async def test_a_refusal_that_names_no_parameter_teaches_nothing(provider: Provider, emulator: LlmEmulator) -> None:
    emulator.next_faults(Fault.INVALID)
    await problem_of(provider)
    await completed(provider)
    first, second = bodies(emulator)
    assert first.keys() == second.keys()


# Time


async def test_a_body_that_drips_for_ever_ends_with_the_total_deadline(dialect: Dialect) -> None:
    """No single read of it takes long."""
    async with (
        LlmEmulator(EmulatorOptions(slow_body_s=3_600.0 * 20)) as emulator,
        provider_on(emulator, dialect) as provider,
    ):
        emulator.next_faults(Fault.SLOW_BODY)
        problem = await problem_of(provider, timeout_s=0.3)
        assert (problem.detail, problem.response_lost) == ("no whole response within 0.3 s", True)


async def test_work_that_nobody_waits_for_any_more_is_billed_and_not_delivered(
    provider: Provider, emulator: LlmEmulator
) -> None:
    emulator.hold()
    assert (await problem_of(provider, timeout_s=0.2)).response_lost
    await until(lambda: emulator.connections == 0)
    emulator.release()
    assert emulator.in_flight == 0
    assert [line.delivered for line in emulator.bill.lines] == [False]


async def test_a_connection_that_never_came_has_lost_nothing(dialect: Dialect) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        async with open_provider(dialect.provider, dialect.model, SecretStr(API_KEY), url, 1) as provider:
            problem = await problem_of(provider)
    assert (problem.failure, problem.response_lost) == (CallFailure.TRANSIENT, False)


async def test_a_server_that_does_not_accept_has_got_nothing(dialect: Dialect) -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
        async with open_provider(dialect.provider, dialect.model, SecretStr(API_KEY), url, 1) as provider:
            problem = await problem_of(provider, timeout_s=0.5)
    assert (problem.detail, problem.response_lost) == ("no response (ConnectTimeout)", False)


async def test_waiting_for_a_free_connection_has_its_own_deadline(emulator: LlmEmulator, dialect: Dialect) -> None:
    """openai-python#769, #1195: time in the pool's queue counted as the provider's."""
    emulator.next_faults(Fault.SILENCE)
    async with provider_on(emulator, dialect, connections_max=1) as provider, asyncio.TaskGroup() as group:
        silent = group.create_task(problem_of(provider, timeout_s=1.0))
        await until(lambda: emulator.in_flight_max == 1)
        problem = await problem_of(provider, timeout_s=0.4)
        assert (problem.detail, problem.response_lost) == ("no response (PoolTimeout)", False)
        assert (await silent).response_lost


async def test_a_cancelled_call_leaves_the_provider_usable(emulator: LlmEmulator, dialect: Dialect) -> None:
    emulator.next_faults(Fault.SILENCE)
    async with provider_on(emulator, dialect, connections_max=1) as provider, asyncio.TaskGroup() as group:
        call = group.create_task(replied(provider))
        await until(lambda: emulator.in_flight_max == 1)
        call.cancel()
        assert (await completed(provider)).finish is Finish.COMPLETE


# Connections


async def test_calls_in_a_row_share_one_connection(provider: Provider, emulator: LlmEmulator) -> None:
    """openai-python#933: a client per attempt runs out of files."""
    for _ in range(5):
        await completed(provider)
    assert emulator.connections_accepted == 1


async def test_a_connection_that_the_server_closed_is_not_used_again(provider: Provider, emulator: LlmEmulator) -> None:
    """claude-code#82500: resets on reused sockets."""
    emulator.next_faults(Fault.CLOSE_AFTER)
    await completed(provider)
    await until(lambda: emulator.connections == 0)
    assert (await completed(provider)).finish is Finish.COMPLETE
    assert emulator.connections_accepted == 2


async def test_whatever_becomes_of_a_call_its_connection_can_be_used_again(
    emulator: LlmEmulator, dialect: Dialect
) -> None:
    ends = [fault for fault in Fault if fault in REFUSALS or fault in LOST]
    async with provider_on(emulator, dialect, connections_max=2) as provider:
        for fault in ends:
            emulator.next_faults(fault)
            await problem_of(provider, timeout_s=0.2)
        emulator.hold()
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(completed(provider)) for _ in range(2)]
            await until(lambda: emulator.status()["held"] == 2)
            emulator.release()
        assert {call.result().finish for call in calls} == {Finish.COMPLETE}


async def test_two_hundred_calls_run_side_by_side(provider: Provider, emulator: LlmEmulator) -> None:
    """openai-python#769: time-outs after many concurrent calls."""
    emulator.hold()
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(completed(provider)) for _ in range(200)]
        await until(lambda: emulator.in_flight == 200, timeout_s=TIMEOUT_S)
        emulator.release()
    assert {call.result().finish for call in calls} == {Finish.COMPLETE}
    assert [line.delivered for line in emulator.bill.lines] == [True] * 200
    await completed(provider)
    assert emulator.connections_accepted == 200


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_nothing_is_left_open_when_a_provider_ends(dialect: Dialect, new_loop: object) -> None:
    """openai-python#1254: `Event loop is closed` from a client collected after its loop; warnings are errors here."""

    async def one_call() -> None:
        async with LlmEmulator() as emulator:
            async with provider_on(emulator, dialect) as provider:
                await completed(provider)
            await until(lambda: emulator.connections == 0)

    with asyncio.Runner(loop_factory=new_loop) as runner:  # type: ignore[arg-type]  # both make loops
        runner.run(one_call())
    gc.collect()


# Secrets and surroundings


async def test_the_key_is_shown_nowhere(
    provider: Provider, emulator: LlmEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither by a server that quotes it, nor by a library that logs what it sends, nor in a traceback."""
    caplog.set_level(logging.DEBUG)
    emulator.next_faults(Fault.UNAUTHORIZED, Fault.RESET_AFTER_WORK, None)
    shown = [repr(provider), str(vars(provider))]
    for _ in range(2):
        with pytest.raises(CallFailedError) as raised:
            await replied(provider)
        shown += ["".join(traceback.format_exception(raised.value)), repr(raised.value.problem)]
    shown += [str(await replied(provider)), caplog.text]
    assert API_KEY in str(emulator.requests[0].headers)
    assert not [text for text in shown if API_KEY in text]
    assert "[api key]" in shown[3]


async def test_what_publishers_wrote_is_not_logged(provider: Provider, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await completed(provider)
    assert "Harbour" not in caplog.text


async def test_the_environment_has_no_say(
    emulator: LlmEmulator, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for vendor in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{vendor}_BASE_URL", "http://127.0.0.1:9")
        monkeypatch.setenv(f"{vendor}_API_KEY", "from-outside")
        monkeypatch.setenv(f"{vendor}_CUSTOM_HEADERS", "x-outside: from-outside\nauthorization: Bearer from-outside")
    monkeypatch.setenv("OPENAI_ORG_ID", "from-outside")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "from-outside")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "from-outside")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "from-outside")
    async with provider_on(emulator, dialect) as provider:
        await completed(provider)
    headers = emulator.requests[0].headers
    assert "from-outside" not in str(headers)
    assert API_KEY in str(headers)


@pytest.mark.parametrize("key", ["", " ", "sk-with a space", "sk-newline\n", "sk-ünïcode"])
async def test_what_cannot_be_a_key_is_refused_at_once_and_not_shown(dialect: Dialect, key: str) -> None:
    with pytest.raises(FatalError) as raised:
        async with open_provider(dialect.provider, dialect.model, SecretStr(key), None, 1):
            pass
    assert not key.strip() or key.strip() not in str(raised.value)


async def test_a_provider_that_nobody_knows_is_refused_with_those_there_are() -> None:
    with pytest.raises(FatalError, match=re.escape("no LLM provider is called 'gpt'; there are: openai, anthropic")):
        async with open_provider("gpt", "gpt-5", SecretStr(API_KEY), None, 1):
            pass


# The provider's cache


async def test_openai_caches_what_requests_begin_with(emulator: LlmEmulator) -> None:
    request = score_request(harbour_answer(sources=10, sentences_each=30))
    async with provider_on(emulator, OPENAI) as provider:
        first = await completed(provider, request)
        second = await completed(provider, request)
    assert first.usage.cache_read_tokens == 0
    assert second.usage.cache_read_tokens >= 1_024
    assert second.usage.cache_read_tokens % 128 == 0
    assert second.usage.input_tokens + second.usage.cache_read_tokens == first.usage.input_tokens
    assert [line.usage for line in emulator.bill.lines] == [first.usage, second.usage]


async def test_anthropic_is_told_to_cache_sources_only_once_they_come_again(emulator: LlmEmulator) -> None:
    """Writing costs more than reading once saves: most sources are sent once."""
    request = score_request(harbour_answer(sources=10, sentences_each=30))
    async with provider_on(emulator, ANTHROPIC) as provider:
        usages = [(await completed(provider, request)).usage for _ in range(3)]
    assert [usage.cache_write_tokens > 1_024 for usage in usages] == [False, True, False]
    assert [usage.cache_read_tokens > 1_024 for usage in usages] == [False, False, True]
    assert len({usage.input_tokens + usage.cache_write_tokens + usage.cache_read_tokens for usage in usages}) == 1
    assert [line.usage for line in emulator.bill.lines] == usages
