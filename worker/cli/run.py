"""`attribution-worker run`: the worker."""

from typing import Annotated

import typer

from worker import app
from worker.cli.render import console, run_summary
from worker.settings import load_settings
from worker.telemetry import configure_logging


def run(
    until_drained: Annotated[
        bool, typer.Option("--until-drained", help="Stop when every record now in the topic is settled and published.")
    ] = False,
) -> None:
    """Consume answer events until stopped, settle each, publish what was stored.

    SIGTERM or Ctrl-C stops intake, finishes what is in flight (ATTRIBUTION_SHUTDOWN__DRAIN_S), commits and leaves; a
    second one leaves at once. Either way nothing is lost: what is not committed is redelivered.
    """
    settings = load_settings()
    configure_logging(settings.log)
    summary = app.run_until_stopped(settings, until_drained=until_drained)
    console.print(run_summary(summary))
