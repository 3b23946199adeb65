"""`attribution-worker llm-emulator` as anyone starts it: a process that says how to use it and goes when told."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import typer
from pydantic import SecretStr
from typer.testing import CliRunner

from tests.support.llm import OPENAI, score_request
from worker.adapters.llm.open_provider import open_provider
from worker.cli.llm_emulator import llm_emulator
from worker.embedded.llm_emulator.faults import Fault
from worker.errors import FatalError
from worker.settings import Settings

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(llm_emulator)

START = "import typer; from worker.cli.llm_emulator import llm_emulator; typer.run(llm_emulator)"


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """The process, and the environment that it prints."""
    with subprocess.Popen(  # noqa: S603  # our own interpreter and command
        [sys.executable, "-c", START, "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},  # noqa: TID251  # the process's own, not the worker's
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            if line.startswith("#"):
                break
            lines.append(line.strip())
        try:
            yield process, dict(line.split("=", 1) for line in lines)
        finally:
            process.kill()


def test_a_worker_with_the_printed_settings_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with running("--latency", "0", "--faults", "1:server_error") as (process, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        settings = Settings()
        assert settings.llm.openai_api_key is not None

        async def call(key: SecretStr) -> str:
            async with open_provider("openai", OPENAI.model, key, settings.llm.openai_base_url, 1) as provider:
                request = score_request()
                reply = await provider.complete(request, client_request_id="c", timeout_s=30)
                return provider.read(reply.raw, request).finish

        assert asyncio.run(call(settings.llm.openai_api_key)) == "complete"
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 0
    assert told.startswith("1 requests billed: ")
    assert "{200: 1}" in told


def test_the_names_of_all_faults_are_listed() -> None:
    listed = CliRunner().invoke(app, ["--list-faults"]).stdout.split()
    assert listed == [fault.value for fault in Fault]


@pytest.mark.parametrize(
    ("option", "value"), [("--faults", "nonsense=1"), ("--latency", "soon"), ("--reasoning-tokens", "-1")]
)
def test_an_option_that_makes_no_sense_is_named(option: str, value: str) -> None:
    result = CliRunner().invoke(app, [option, value])
    assert result.exit_code == 2
    assert option in result.stderr


def test_a_port_that_is_taken_is_named() -> None:
    with running() as (_, environment):
        port = environment["ATTRIBUTION_LLM__ANTHROPIC_BASE_URL"].rpartition(":")[2]
        result = CliRunner().invoke(app, ["--port", port])
    assert isinstance(result.exception, FatalError)
    assert port in str(result.exception)
