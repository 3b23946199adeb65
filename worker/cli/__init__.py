"""The command line: `attribution-worker --help` teaches it. Exit codes: 0 done, 1 failed, 2 usage or configuration."""

import sys

import typer
from rich.console import Console

from worker.cli.attribute import attribute
from worker.cli.config import config
from worker.cli.credit import credit
from worker.cli.demo import demo
from worker.cli.evaluate import evaluate
from worker.cli.llm_emulator import llm_emulator
from worker.cli.migrate import migrate
from worker.cli.resume import resume
from worker.cli.run import run
from worker.cli.topics import topics
from worker.cli.verify import verify
from worker.errors import FatalError, UnavailableError
from worker.settings import ConfigurationError, LogSettings
from worker.telemetry import configure_logging

FIRST_STEPS = "Try it without Kafka or a database"
OPERATE = "Run it beside your answer stream"
AUDIT = "Check what was paid"

app = typer.Typer(
    name="attribution-worker",
    help="""Exact per-source credit for every answer a generative search engine serves.

Answer events come in from Kafka; a judge scores how well each source supports each key point of the answer; the exact
Shapley value of that matrix is each source's credit; result and evidence go to PostgreSQL in one transaction.

First time here: `attribution-worker demo`. Then: `migrate`, `topics`, `run`.""",
    epilog="Settings come from the environment (ATTRIBUTION_…): `attribution-worker config` lists each with its value.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for panel, commands in {
    FIRST_STEPS: (demo, attribute, credit, evaluate, llm_emulator),
    OPERATE: (migrate, topics, run, resume, config),
    AUDIT: (verify,),
}.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)


@app.callback()
def prepare() -> None:
    # No docstring: it would take the place of the help above.
    configure_logging(LogSettings(level="warning"))


def main() -> None:
    """Run the command line; an expected failure is one clear message, never a traceback."""
    try:
        app()
    except ConfigurationError as error:
        fail("configuration", error, exit_code=2)
    except FatalError as error:
        fail("stopped", error, exit_code=1)
    except UnavailableError as error:
        fail("unavailable", error, exit_code=1)


def fail(kind: str, error: Exception, *, exit_code: int) -> None:
    Console(stderr=True).print(f"[bold red]{kind}:[/] {error}", highlight=False, soft_wrap=True)
    sys.exit(exit_code)
