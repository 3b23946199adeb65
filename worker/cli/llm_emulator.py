"""`attribution-worker llm-emulator`: both LLM APIs on this machine, for anyone's load test."""

import asyncio
import signal
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, TypeVar

import typer
import uvloop
from rich.console import Console

from worker.embedded.llm_emulator.chances import spread_of
from worker.embedded.llm_emulator.emulator import LlmEmulator, fault_names
from worker.embedded.llm_emulator.fault_plan import fault_plan_of
from worker.embedded.llm_emulator.judgements import instant_opinion, local_opinion
from worker.embedded.llm_emulator.options import EmulatorOptions
from worker.embedded.llm_emulator.rate_limits import RateLimits
from worker.embedded.llm_emulator.tokens import FourBytes, O200k
from worker.errors import FatalError

T = TypeVar("T")

console = Console(highlight=False, soft_wrap=True)


class Judgements(StrEnum):
    """What the emulated model thinks."""

    LOCAL = "local"
    INSTANT = "instant"


def llm_emulator(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0: any free one.", min=0, max=65_535)] = 8_089,
    latency: Annotated[
        str, typer.Option(help="Seconds a call takes: a number, or lognormal:MEDIAN,SIGMA.", metavar="SPREAD")
    ] = "0.5",
    output_token_s: Annotated[float, typer.Option(help="Seconds that each output token adds.", min=0)] = 0.0,
    reasoning_tokens: Annotated[
        str, typer.Option(help="Tokens that the model reasons for: a number, or lognormal:MEDIAN,SIGMA.")
    ] = "0",
    requests_per_minute: Annotated[int | None, typer.Option(help="Limit of each model; unset: none.", min=1)] = None,
    tokens_per_minute: Annotated[
        int | None, typer.Option(help="OpenAI's: input and output cap, charged when a request arrives.", min=1)
    ] = None,
    input_tokens_per_minute: Annotated[
        int | None, typer.Option(help="Anthropic's: input that was not cached, charged when it arrives.", min=1)
    ] = None,
    output_tokens_per_minute: Annotated[
        int | None, typer.Option(help="Anthropic's: output, charged when it was produced.", min=1)
    ] = None,
    burst_s: Annotated[float, typer.Option(help="For how many seconds an idle account saves up.", min=0.001)] = 60.0,
    time_scale: Annotated[
        float, typer.Option(help="Emulated seconds in a real one: 60 makes minutes last a second.", min=0.001)
    ] = 1.0,
    faults: Annotated[
        str, typer.Option(help="NAME=CHANCE and NUMBER:NAME (that request's), with commas between; see --list-faults.")
    ] = "",
    seed: Annotated[int, typer.Option(help="The same seed and requests have the same faults and latencies.")] = 0,
    judgements: Annotated[
        Judgements,
        typer.Option(
            help="local: the local judge's; instant: canned, and four bytes count as a token, for the highest load."
        ),
    ] = Judgements.LOCAL,
    list_faults: Annotated[bool, typer.Option("--list-faults", help="Print the names of all faults and exit.")] = False,
) -> None:
    """Behave like OpenAI's and Anthropic's APIs on 127.0.0.1, and keep the bill.

    Prints the settings with which a worker uses it. Its judgements are the local judge's, in the form that a model
    would give; limits are enforced by each provider's own rule and told in its headers; any key is taken.

    The bill, every request that was worked for to the last token: `curl localhost:8089/bill`. Cleared by
    `curl -X DELETE …/bill`. Limits: `/limits`. Faults for the next requests:
    `curl localhost:8089/faults -d '{"faults": ["rate_limited", null, "reset_after_work"]}'`.

    For example a busy afternoon: --latency lognormal:2,0.5 --requests-per-minute 600 --tokens-per-minute 200000
    --faults rate_limited_1=0.01,overloaded=0.005,reset_after_work=0.002
    """
    if list_faults:
        console.print("\n".join(fault_names()))
        return
    limits = RateLimits(
        requests=requests_per_minute,
        tokens=tokens_per_minute,
        input_tokens=input_tokens_per_minute,
        output_tokens=output_tokens_per_minute,
        burst_s=burst_s,
    )
    options = EmulatorOptions(
        seed=seed,
        latency_s=_parsed(spread_of, latency, "--latency"),
        output_token_s=output_token_s,
        reasoning_tokens=_parsed(spread_of, reasoning_tokens, "--reasoning-tokens"),
        limits=limits,
        time_scale=time_scale,
        faults=_parsed(fault_plan_of, faults, "--faults"),
        opinion=local_opinion if judgements is Judgements.LOCAL else instant_opinion,
        tokenizer=O200k() if judgements is Judgements.LOCAL else FourBytes(),
        requests_kept=0,
    )
    try:
        uvloop.run(_serve(LlmEmulator(options, port=port)))
    except OSError as error:
        raise FatalError(f"port {port} of 127.0.0.1 cannot be had ({error.strerror}): name another by --port") from None


async def _serve(emulator: LlmEmulator) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with emulator:
        for line in environment_lines(emulator):
            console.print(line, markup=False)
        await stop.wait()
        totals = emulator.bill.totals
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"{totals.lines} requests billed: {totals.input_tokens} input tokens, {totals.cache_read_tokens} read from "
            f"and {totals.cache_write_tokens} written to the cache, {totals.output_tokens} output, "
            f"{totals.reasoning_tokens} reasoning; responses by status: {dict(emulator.requests_by_status)}"
        )


def environment_lines(emulator: LlmEmulator) -> tuple[str, ...]:
    """Settings of a worker that uses the emulator, as lines of an environment file."""
    return (
        "ATTRIBUTION_JUDGE__NAME=openai",
        "ATTRIBUTION_JUDGE__MODEL=gpt-5-mini",
        "ATTRIBUTION_JUDGE__SECRET=any-16-bytes-or-more",
        f"ATTRIBUTION_LLM__OPENAI_BASE_URL={emulator.openai_base_url}",
        "ATTRIBUTION_LLM__OPENAI_API_KEY=any",
        f"ATTRIBUTION_LLM__ANTHROPIC_BASE_URL={emulator.anthropic_base_url}",
        "ATTRIBUTION_LLM__ANTHROPIC_API_KEY=any",
        "# For Anthropic: ATTRIBUTION_JUDGE__NAME=anthropic, ATTRIBUTION_JUDGE__MODEL=claude-haiku-4-5",
    )


def _parsed(parse: Callable[[str], T], text: str, option: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
