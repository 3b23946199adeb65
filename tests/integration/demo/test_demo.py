"""`attribution-worker demo` as a newcomer meets it: one command, and everything is there to be seen."""

import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import lines
from tests.support.command_line import environment, environment_of, program
from tests.support.processes import await_that, open_directory, processes_at
from worker.demo.first_run import LOOK_FURTHER
from worker.embedded.broker import Broker
from worker.embedded.keeper import open_to_all

DEADLINE_S = 100.0
REPOSITORY = Path(__file__).parents[3]


@contextmanager
def demo(directory: Path, *options: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """The demo with its temporary files in this directory, in a process group of its own, as a terminal has it."""
    with subprocess.Popen(  # noqa: S603  # our own interpreter and program
        program("demo", *options),
        env=environment(TMPDIR=str(directory), **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def finished(directory: Path, *options: str, **variables: str) -> str:
    """What a demo prints that runs to its end, and leaves nothing."""
    with demo(directory, *options, **variables) as process:
        stdout, stderr = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, stderr) == (0, ""), stdout
    assert_nothing_is_left(directory)
    return stdout


def assert_nothing_is_left(directory: Path) -> None:
    await_that(lambda: not processes_at(directory) and not any(directory.iterdir()), timeout_s=10)
    assert processes_at(directory) == []
    assert list(directory.iterdir()) == []


def assert_shows_everything(printed: str) -> None:
    """What the demo is there to show, part by part."""
    answers = re.findall(r"\((?:default|lumen|kompass)/[a-z-]+\)", printed)
    assert len(answers) == len(set(answers)) == 14
    assert len(re.findall(r"^  s\d+ .* \d+\.\d %\s*$", printed, re.MULTILINE)) > 30
    assert "█" in printed
    assert re.search(r"^  ungrounded: Most insurers", printed, re.MULTILINE)
    assert "no source supports any of it, nobody earns" in printed
    assert "2.40 USD to share" in printed
    owners = printed.partition("Who earned what, over all answers")[2]
    assert re.search(r"^open-almanac +█+\S* +2\.196 +8\s*$", owners, re.MULTILINE)
    assert "(sources without an owner)" in owners
    assert re.search(r"^Settled +11 attributed, 1 no_key_points, 1 no_sources, 1 ungrounded", owners, re.MULTILINE)
    assert re.search(r"^Cost +0 LLM calls, 0 tokens, 0.00 USD", owners, re.MULTILINE)
    assert re.search(r"^Speed +[\d,]+ events/s: 14 events in \d+\.\d\d s", owners, re.MULTILINE)
    table = owners.partition(LOOK_FURTHER)[2]
    assert re.search(r"^ +day +tenant +owner_id +answers +credit +shares", table, re.MULTILINE)
    assert re.search(r"^ 20\S+ +lumen +ellery-courier +6 +1\.904317 +1\.937148", table, re.MULTILINE)


def test_one_command_shows_everything_and_leaves_nothing() -> None:
    with open_directory() as directory:
        printed = finished(directory)
    assert_shows_everything(printed)
    assert "Kafka: embedded, started at 127.0.0.1:" in printed
    assert "The services are gone now. To keep them up, and get a psql line" in printed
    assert "demo --keep" in printed
    assert "\x1b" not in printed, "colours are for terminals"


def pasted(line: str) -> subprocess.CompletedProcess[str]:
    """A printed line in a shell, in an environment without any of our settings."""
    return subprocess.run(  # noqa: S602  # as a person would
        line, shell=True, env=environment(), cwd=REPOSITORY, capture_output=True, text=True, check=False
    )


def test_kept_services_stay_and_the_printed_lines_work_until_ctrl_c() -> None:
    with open_directory() as directory, demo(directory, "--keep") as process:
        assert process.stdout is not None
        printed = ""
        while "Ctrl-C ends them" not in printed and (line := process.stdout.readline()):
            printed += line
        psql, verify = re.findall(r"^  (\S.*(?:-c|verify).*)$", printed, re.MULTILINE)[-2:]

        answered, verified = pasted(psql), pasted(verify)
        process.send_signal(signal.SIGINT)
        rest, stderr = process.communicate(timeout=DEADLINE_S)

        assert (answered.returncode, answered.stderr) == (0, "")
        assert "ellery-courier" in answered.stdout
        assert (verified.returncode, verified.stderr) == (0, "")
        assert verified.stdout == "14 attributions recomputed from their evidence: all equal, bit for bit.\n"
        assert (process.returncode, rest, stderr) == (0, "\nStopped; nothing is left behind.\n", "")
        assert_nothing_is_left(directory)


@pytest.mark.postgres
def test_given_services_are_used_a_given_judge_is_not_and_no_password_is_printed(
    kafka_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    judge = {"name": "openai", "model": "gpt-5-mini"}
    given = environment_of(lines.settings_of(kafka_broker, postgres_dsn, topics_prefix, judge=judge))
    with open_directory() as directory:
        printed = finished(directory, **given)
        assert_shows_everything(printed)
        assert f"Kafka: yours, at {kafka_broker.bootstrap_servers}" in printed
        assert "PostgreSQL: yours, from ATTRIBUTION_POSTGRES__DSN" in printed
        assert postgres_dsn.rpartition("@")[0] not in printed
        psql, verify = re.findall(r"^  (\S.*(?:-c|verify).*)$", printed, re.MULTILINE)[-2:]
        for line in (psql, verify):
            ran = pasted(f"export ATTRIBUTION_POSTGRES__DSN={shlex.quote(postgres_dsn)}; {line}")
            assert (ran.returncode, ran.stderr) == (0, "")

        again = finished(directory, **given)
        assert "Settled     14 duplicate" in again, "the same answers on the same services are settled already"


@pytest.mark.kafka
def test_the_same_demo_runs_on_a_real_apache_kafka() -> None:
    with open_directory() as directory:
        printed = finished(directory, "--broker", "apache")
    assert_shows_everything(printed)
    assert re.search(r"^Kafka: .*[Aa]pache.*, started at 127\.0\.0\.1:", printed, re.MULTILINE)


def interpreters_for_anybody() -> Sequence[str]:
    """Pythons that any account may run, of the version that the installed packages were built for."""
    version = f"python3.{sys.version_info.minor}"
    candidates = [sys.executable, *(shutil.which(version, path=path) or "" for path in ("/usr/bin", "/usr/local/bin"))]
    return [python for python in candidates if python and open_to_all(Path(python).resolve())]


@pytest.mark.skipif(os.geteuid() != 0, reason="every other test of the demo ran as an ordinary user")
def test_root_is_not_needed() -> None:
    pythons = interpreters_for_anybody()
    if not pythons:
        pytest.skip("root alone may run this Python: install one for everybody to see the demo run as nobody")
    nobody = pwd.getpwnam("nobody")
    with open_directory() as directory:
        directory.chmod(0o777)
        variables = {
            "TMPDIR": str(directory),
            "HOME": str(directory / "home"),
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(entry for entry in [str(REPOSITORY), *sys.path] if entry),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        ran = subprocess.run(  # noqa: S603  # a Python of this machine and our own program
            [pythons[-1], "-m", "worker", "demo"],
            env=environment(**variables),
            cwd="/",
            user=nobody.pw_uid,
            group=nobody.pw_gid,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        assert_shows_everything(ran.stdout)
        assert_nothing_is_left(directory)
