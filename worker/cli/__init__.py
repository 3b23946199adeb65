"""The command line: `attribution-worker --help` teaches it. Exit codes: 0 done, 1 failed, 2 usage or configuration."""

import logging
import sys
from collections.abc import Callable, Mapping

import typer
from rich.markup import escape

from worker.cli.attribute import attribute
from worker.cli.config import config
from worker.cli.credit import credit
from worker.cli.dead_letters import dead_letters
from worker.cli.demo import demo
from worker.cli.erase import erase
from worker.cli.evaluate import evaluate
from worker.cli.llm_emulator import llm_emulator
from worker.cli.migrate import migrate
from worker.cli.resume import resume
from worker.cli.run import run
from worker.cli.terminal import accept_every_encoding, error_console
from worker.cli.topics import topics
from worker.cli.verify import verify
from worker.errors import FatalError, UnavailableError
from worker.settings import ConfigurationError, LogSettings
from worker.telemetry import configure_logging

FIRST_STEPS = "Try it without Kafka or a database"
OPERATE = "Run it beside your answer stream"
AUDIT = "Check what was paid"
ADVICE = (
    "Is it running where ATTRIBUTION_KAFKA__BOOTSTRAP_SERVERS and ATTRIBUTION_POSTGRES__DSN say? `attribution-worker "
    "config` shows what is set. `demo`, `attribute` and `credit` need neither."
)

app = typer.Typer(
    name="attribution-worker",
    help="""Exact per-source credit for every answer a generative search engine serves.

Answer events come in from Kafka; a judge scores how well each source supports each key point of the answer; the exact
Shapley value of that matrix is each source's credit; result and evidence go to PostgreSQL in one transaction.

First time here: `attribution-worker demo`. Then: `migrate`, `topics`, `run`. Exit codes: 0 done, 1 failed, 2 usage or
configuration.""",
    epilog="Settings come from the environment (ATTRIBUTION_…): `attribution-worker config` lists each with its value.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
PANELS: Mapping[str, tuple[Callable[..., None], ...]] = {
    FIRST_STEPS: (demo, attribute, credit, evaluate, llm_emulator),
    OPERATE: (migrate, topics, run, resume, config),
    AUDIT: (verify, erase),
}
for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(dead_letters, name="dead-letters", rich_help_panel=OPERATE)


@app.callback()
def prepare() -> None:
    # No docstring: it would take the place of the help above.
    configure_logging(LogSettings(level="warning"))
    # A command says itself what a library failed at; only `run`, which works on its own, logs that as well.
    logging.basicConfig(handlers=[logging.NullHandler()], force=True)


def main() -> None:
    """Run the command line; an expected failure is one clear message on stderr, never a traceback."""
    accept_every_encoding()
    try:
        app()
    except ConfigurationError as error:
        fail("configuration", str(error), exit_code=2)
    except FatalError as error:
        fail("stopped", str(error), exit_code=1)
    except UnavailableError as error:
        fail("unavailable", f"{error}\n{ADVICE}", exit_code=1)


def fail(kind: str, message: str, *, exit_code: int) -> None:
    error_console.print(f"[bold red]{kind}:[/] {escape(message)}", soft_wrap=True)
    sys.exit(exit_code)
