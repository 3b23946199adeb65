"""`attribution-worker demo`: the whole path on sample answers, in one command."""

import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from worker.cli.demo_report import show
from worker.cli.interruptions import Interruptions
from worker.cli.terminal import console, plain
from worker.demo.first_run import LOOK_FURTHER, first_run
from worker.demo.services import BrokerName, is_own_postgres, psql, services
from worker.settings import Settings, load_settings

GIVEN_DSN = '"$ATTRIBUTION_POSTGRES__DSN"'
"""As the shell has it already: a given address holds a password that is not ours to print."""


def demo(
    broker: Annotated[
        BrokerName,
        typer.Option("--broker", help="embedded: in seconds; apache: a real Apache Kafka (needs Java and Maven)."),
    ] = BrokerName.EMBEDDED,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the services up afterwards, until Ctrl-C, to look around in SQL.")
    ] = False,
) -> None:
    """Attribute a dozen sample answers end to end: Kafka in, exact credit in PostgreSQL, in one command.

    Starts an embedded broker and an embedded PostgreSQL on 127.0.0.1, or uses those that
    ATTRIBUTION_KAFKA__BOOTSTRAP_SERVERS and ATTRIBUTION_POSTGRES__DSN name; then the worker of `attribution-worker run`
    settles every answer, with the local judge. Whatever was started is gone afterwards, files included, also after
    Ctrl-C. The local judge counts words: good for a first look, never for paying anyone.

    Example: `attribution-worker demo --keep`, and in another terminal the `psql` line that it prints.
    """
    with Interruptions() as interruptions:
        settings = load_settings()
        serving = False
        try:
            with services(settings, broker, say) as running, interruptions.ignored_afterwards():
                result = interruptions.run(lambda: first_run(running, say))
                show(result)
                serving = keep
                show_where_to_look(running, own=is_own_postgres(settings), keep=keep)
                if keep:
                    signal.pause()
        except KeyboardInterrupt:
            console.print("\nStopped; nothing is left behind.")
            raise typer.Exit(0 if serving else interruptions.exit_code) from None


def say(text: str) -> None:
    console.print(f"[dim]{plain(text)}[/]", soft_wrap=True)


def show_where_to_look(settings: Settings, *, own: bool, keep: bool) -> None:
    """Lines to paste, where the database stays; else how to make it stay."""
    console.print()
    if own and not keep:
        console.print(
            f"[bold]Look further[/]  The services are gone now. To keep them up, and get a psql line:\n"
            f"  {plain(this_command())} demo --keep      [dim](or: make demo DEMO_OPTIONS=--keep)[/]",
            soft_wrap=True,
        )
        return
    dsn = shlex.quote(settings.postgres.dsn.get_secret_value()) if own else GIVEN_DSN
    verify = f"{this_command()} verify" if not own else f"ATTRIBUTION_POSTGRES__DSN={dsn} {this_command()} verify"
    console.print(f"[bold]Look further[/]{', in another terminal' if keep else ''}")
    console.print(f'  {psql()} {dsn} -c "{LOOK_FURTHER}"', soft_wrap=True, markup=False)
    console.print(f"  {verify}", soft_wrap=True, markup=False)
    if keep:
        console.print("\nThe services stay up. Ctrl-C ends them.")


def this_command() -> str:
    """How this program was called, so that the lines it prints can be pasted."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m worker"
    found = shutil.which(called.name)
    return called.name if found and called.exists() and Path(found).samefile(called) else shlex.quote(str(called))
