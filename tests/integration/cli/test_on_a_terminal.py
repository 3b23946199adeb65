"""The same commands on a terminal and away from one: progress and colours only where somebody sees them."""

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import environment, program
from worker.demo.first_run import sample_events


def on_a_terminal(arguments: list[str], *, stdout: Path | None = None, **variables: str) -> tuple[int, str]:
    """Exit code and what the terminal showed; it is stderr, and stdout too unless that goes to a file."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        target = theirs if stdout is None else os.open(stdout, os.O_WRONLY | os.O_CREAT)
        with subprocess.Popen(  # noqa: S603  # our own interpreter and program
            program(*arguments),
            env=environment(**{"TERM": "xterm-256color", **variables}),
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=theirs,
        ) as process:
            os.close(theirs)
            shown = b""
            try:
                while chunk := terminal.read(65_536):
                    shown += chunk
            except OSError:  # so ends a terminal whose last process is gone
                pass
            exit_code = process.wait()
        if stdout is not None:
            os.close(target)
    return exit_code, shown.decode()


@pytest.fixture
def samples(tmp_path: Path) -> str:
    file = tmp_path / "samples.jsonl"
    file.write_bytes(b"\n".join(sample_events()))
    return str(file)


def test_results_sent_to_a_file_are_in_the_file_and_the_terminal_has_the_progress(samples: str, tmp_path: Path) -> None:
    # rich sends what is written to stdout to the stream of its progress bar, unless told otherwise.
    results = tmp_path / "results.jsonl"
    exit_code, shown = on_a_terminal(["attribute", samples, "--format", "json"], stdout=results)
    assert exit_code == 0
    assert len(results.read_text().splitlines()) == len(sample_events())
    assert "events" in shown
    assert "answer_id" not in shown


def test_on_a_terminal_results_have_colours_and_no_progress_among_them(samples: str) -> None:
    exit_code, shown = on_a_terminal(["attribute", samples])
    assert exit_code == 0
    assert "\x1b[" in shown
    assert "\x1b[2K" not in shown, "no line was drawn over"


def test_a_terminal_that_wants_no_colours_gets_none(samples: str) -> None:
    _, plain = on_a_terminal(["attribute", samples], NO_COLOR="1")
    assert "\x1b[3" not in plain
    _, dumb = on_a_terminal(["attribute", samples], TERM="dumb")
    assert "\x1b" not in dumb


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_of_any_encoding_shows_what_it_can(samples: str, encoding: str) -> None:
    ran = subprocess.run(  # noqa: S603  # our own interpreter and program
        program("attribute", samples),
        env=environment(PYTHONIOENCODING=encoding, PYTHONUTF8="0"),
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    text = ran.stdout.decode(encoding)
    assert ("█" if encoding == "utf-8" else "####") in text
    assert text.count("supported") == 11


def test_a_reader_that_goes_away_ends_the_command_without_a_traceback(samples: str) -> None:
    for output in ("json", "table"):
        with subprocess.Popen(  # noqa: S603  # our own interpreter and program
            program("attribute", *[samples] * 20, "--format", output),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""


@pytest.mark.postgres
def test_an_audit_shows_its_progress_on_a_terminal_alone(postgres_dsn: str) -> None:
    exit_code, shown = on_a_terminal(["verify"], ATTRIBUTION_POSTGRES__DSN=postgres_dsn)
    assert exit_code == 0
    assert "verifying" in shown
    assert "Nothing to verify" in shown
