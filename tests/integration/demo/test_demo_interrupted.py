"""Ctrl-C and SIGTERM at any moment of the demo: no process, no file and no traceback is left."""

import os
import random
import signal
import subprocess

import pytest

from tests.integration.demo.test_demo import assert_nothing_is_left, demo
from tests.support.processes import open_directory

GONE_WITHIN_S = 60.0
STAGES = ["", "Kafka: ", "PostgreSQL: ", "Published ", "How much power", "Look further"]
"""What was printed last; before anything, the program is being loaded."""
DICE = random.Random(5)
EXIT_CODES = {signal.SIGINT: {0, 130, -signal.SIGINT}, signal.SIGTERM: {0, 143, -signal.SIGTERM}}
"""Finished all the same; interrupted and cleaned up; ended where there was nothing to clean up."""


def moments() -> list[object]:
    chosen = [
        *((signal.SIGINT, stage, True) for stage in STAGES),
        (signal.SIGINT, "Published ", False),
        (signal.SIGTERM, "PostgreSQL: ", True),
    ]
    return [
        pytest.param(
            number,
            stage,
            moment_s := DICE.uniform(0, 0.6),
            once,
            id=f"{number.name}-{stage.split(' ')[0].strip(':') or 'loading'}-{moment_s:.2f}s{'' if once else '-twice'}",
        )
        for number, stage, once in chosen
    ]


@pytest.mark.parametrize(("number", "stage", "moment_s", "once"), moments())
def test_the_demo_interrupted_at_any_moment_leaves_nothing(
    number: signal.Signals, stage: str, moment_s: float, once: bool
) -> None:
    with open_directory() as directory, demo(directory) as process:
        assert process.stdout is not None
        printed = ""
        while stage and stage not in printed and (line := process.stdout.readline()):
            printed += line
        try:
            process.wait(moment_s)
        except subprocess.TimeoutExpired:
            for _ in range(1 if once else 2):
                # To the whole group, as a terminal's Ctrl-C does.
                os.killpg(process.pid, number)
        rest, stderr = process.communicate(timeout=GONE_WITHIN_S)
        assert stderr == ""
        assert process.returncode in EXIT_CODES[number]
        if process.returncode in {130, 143}:
            assert rest.endswith("\nStopped; nothing is left behind.\n")
        assert_nothing_is_left(directory)
