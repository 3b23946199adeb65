"""Ctrl-C and SIGTERM in a command that has something to clean up."""

import asyncio
import signal
from collections.abc import Iterator

import pytest

from worker.cli.interruptions import Interruptions

BOTH = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture(autouse=True)
def _handlers_left_as_they_were() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in BOTH}
    yield
    after = {number: signal.getsignal(number) for number in BOTH}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == before


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_interrupts_what_is_under_way(number: signal.Signals, exit_code: int) -> None:
    with Interruptions() as interruptions, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert interruptions.exit_code == exit_code


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_cancels_what_runs_on_the_loop_and_waits_for_it_to_clean_up(number: signal.Signals) -> None:
    steps: list[str] = []

    async def main() -> None:
        try:
            signal.raise_signal(number)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    with Interruptions() as interruptions, pytest.raises(KeyboardInterrupt):
        interruptions.run(main)
    assert steps == ["cleaned up"]
    assert interruptions.received is number


def test_what_a_cancelled_part_says_on_its_way_out_is_no_news() -> None:
    async def main() -> None:
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("closed in the middle")

    with Interruptions() as interruptions, pytest.raises(KeyboardInterrupt):
        interruptions.run(main)


def test_an_error_without_a_signal_stays_what_it_is() -> None:
    async def main() -> None:
        raise RuntimeError("a failure")

    with Interruptions() as interruptions, pytest.raises(RuntimeError, match="a failure"):
        interruptions.run(main)


def test_a_signal_in_the_last_moment_is_not_lost() -> None:
    async def main() -> str:
        signal.raise_signal(signal.SIGINT)
        asyncio.get_running_loop().call_soon(lambda: None)
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return "done all the same"
        return "not interrupted"

    with Interruptions() as interruptions, pytest.raises(KeyboardInterrupt):
        interruptions.run(main)


def test_the_result_is_handed_back_and_signals_interrupt_again_afterwards() -> None:
    async def main() -> str:
        return "result"

    with Interruptions() as interruptions:
        assert interruptions.run(main) == "result"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


def test_cleaning_up_is_not_interrupted() -> None:
    with Interruptions() as interruptions:
        with interruptions.ignored_afterwards():
            pass
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert interruptions.received is None


def test_a_background_job_whose_shell_ignores_ctrl_c_goes_on_ignoring_it() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interruptions() as interruptions:
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        assert interruptions.exit_code == 143
    finally:
        signal.signal(signal.SIGINT, before)
