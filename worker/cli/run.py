"""`attribution-worker run`: the worker."""

import asyncio
from typing import Annotated

import typer

from worker import app
from worker.cli.render import outcomes_told
from worker.cli.terminal import console, error_console
from worker.errors import WorkerError
from worker.settings import load_settings
from worker.telemetry import configure_logging, log


def run(
    until_drained: Annotated[
        bool, typer.Option("--until-drained", help="Stop when every record now in the topic is settled and published.")
    ] = False,
) -> None:
    """Consume answer events until stopped, settle each, publish what was stored.

    SIGTERM or Ctrl-C stops intake, finishes what is in flight (up to ATTRIBUTION_SHUTDOWN__DRAIN_S seconds), commits
    and leaves; a second one leaves at once. Either way nothing is lost: what is not committed is redelivered.

    Needs the topics (`attribution-worker topics`) and the tables (`attribution-worker migrate`). Any number may run; as
    many as there are partitions have work. One line per record is logged on stderr; ATTRIBUTION_LOG__FORMAT and
    ATTRIBUTION_LOG__LEVEL choose how. `attribution-worker config` shows where it would connect, and who judges:
    ATTRIBUTION_JUDGE__NAME is the local judge, never for paying anyone, until it names an LLM.

    Example: `ATTRIBUTION_KAFKA__BOOTSTRAP_SERVERS=kafka:9092 ATTRIBUTION_POSTGRES__DSN=… attribution-worker run`
    """
    settings = load_settings()
    configure_logging(settings.log)
    try:
        summary = app.run_until_stopped(settings, until_drained=until_drained)
    except WorkerError:
        raise
    except asyncio.CancelledError:
        error_console.print("Left at once, as asked by a second signal: what is not committed is redelivered.")
        raise typer.Exit(1) from None
    except Exception as error:  # noqa: BLE001  # a bug, told without what Python's own traceback may quote of an answer
        log.critical("worker.crashed", exc_info=error)
        raise typer.Exit(1) from None
    console.print(f"Stopped cleanly: {outcomes_told(summary.outcomes) or 'no records'}.")
