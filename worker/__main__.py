"""`python -m worker` is `attribution-worker`."""

import signal


def main() -> None:
    """Run the command line; outside a command, where nothing needs cleaning up, Ctrl-C ends it without a word."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Here and not above: the imports take most of a second, and Ctrl-C in them would show a traceback.
    from worker.cli import main as run_command_line  # noqa: PLC0415

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run_command_line()
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
