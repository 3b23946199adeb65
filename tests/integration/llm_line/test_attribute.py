"""`attribution-worker attribute --judge openai|anthropic --model …`: no Kafka, no database."""

import asyncio
import json
from decimal import Decimal

from tests.integration.llm_line.test_llm_line import SAMPLES, expected_credit, sample_answers
from tests.support import llm_lines
from tests.support.command_line import environment, program
from tests.support.llm import API_KEY, Dialect
from worker.embedded.llm_emulator.emulator import LlmEmulator
from worker.embedded.llm_emulator.faults import Fault


async def test_events_become_the_models_credit_and_their_usage_is_the_bill(dialect: Dialect) -> None:
    async with LlmEmulator() as emulator:
        emulator.next_faults(Fault.RATE_LIMITED_1, Fault.SERVER_ERROR, Fault.RESET_AFTER_WORK, Fault.FENCED)
        process = await asyncio.create_subprocess_exec(
            *program("attribute", "-", "--judge", dialect.provider, "--model", dialect.model, "--format", "json"),
            env=environment(
                ATTRIBUTION_LLM__OPENAI_API_KEY=API_KEY,
                ATTRIBUTION_LLM__OPENAI_BASE_URL=emulator.openai_base_url,
                ATTRIBUTION_LLM__ANTHROPIC_API_KEY=API_KEY,
                ATTRIBUTION_LLM__ANTHROPIC_BASE_URL=emulator.anthropic_base_url,
                ATTRIBUTION_LIMITER__PAUSE_MAX_S="0.1",
                ATTRIBUTION_LOG__LEVEL="debug",
            ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate(b"\n".join(SAMPLES))
        bill = emulator.bill.lines
    assert process.returncode == 0, stderr.decode()
    told = [json.loads(line) for line in stdout.splitlines()]
    answers = sample_answers()
    assert [line["answer_id"] for line in told] == [answer.key.answer_id for answer in answers]
    for line, answer in zip(told, answers, strict=True):
        earned = {source["source_id"]: (source["credit_units"], source["share_units"]) for source in line["sources"]}
        assert earned == expected_credit(answer)
    assert sum(line["usage"]["calls"] for line in told) == len(bill)
    lost = [line for line in bill if not line.delivered]
    assert len(lost) == 1
    known = [Decimal(line["usage"]["cost_usd"]) for line in told if line["usage"]["cost_usd"] is not None]
    assert len(known) == len(told) - 1, "the answer whose call was lost cost nobody knows what"
    assert sum(known) < sum(map(llm_lines.billed_usd, bill))
    for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"):
        assert sum(line["usage"][name] for line in told) == sum(
            getattr(line.usage, name) for line in bill if line.delivered
        )
    said = stderr.decode()
    assert "call.failed" in said
    assert API_KEY not in said
    assert "Fenwick" not in said, "no payload is logged"
