"""Fetching Apache Kafka: once for all who ask, whole or not at all, and these bytes or none. Maven is a fake here."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.processes import await_that, processes_at
from worker.embedded import kafka_jars
from worker.embedded.apache_kafka import ApacheKafka
from worker.embedded.failure import LaunchError, MissingPrerequisiteError
from worker.embedded.prerequisites import missing_packages

TIMEOUT_S = 30.0
JAR = b"a jar"
MAVEN = """#!{python} -IS
import pathlib, sys, time
target = next(pathlib.Path(a.partition("=")[2]) for a in sys.argv if a.startswith("-DoutputDirectory="))
with open({calls!r}, "a") as calls:
    calls.write("called\\n")
target.mkdir()
(target / "half.jar").write_bytes({jar!r})
{then}
(target / "other.jar").write_bytes({jar!r})
"""
OWNER = "import sys, pathlib; from worker.embedded.kafka_jars import kafka_jars; kafka_jars(pathlib.Path(sys.argv[1]))"


class FakeMaven:
    """The only `mvn` on the PATH; it remembers how often it was called."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._calls = directory / "calls"
        self._calls.touch()

    def install(self, then: str = "") -> None:
        script = MAVEN.format(python=sys.executable, calls=str(self._calls), jar=JAR, then=then)
        path = self.directory / "mvn"
        path.write_text(script)
        path.chmod(0o755)

    @property
    def calls(self) -> int:
        return len(self._calls.read_text().splitlines())


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMaven:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    fake = FakeMaven(directory)
    fake.install()
    return fake


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    expected = tmp_path / "expected"
    expected.mkdir()
    for name in ("half.jar", "other.jar"):
        (expected / name).write_bytes(JAR)
    monkeypatch.setattr(kafka_jars, "JARS_SHA256", kafka_jars.jars_sha256(expected))
    return tmp_path / "cache" / "kafka"


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_jars_are_fetched_once(maven: FakeMaven, cache: Path) -> None:
    assert names_in(kafka_jars.kafka_jars(cache)) == {"half.jar", "other.jar"}
    kafka_jars.kafka_jars(cache)
    assert maven.calls == 1


def test_of_several_callers_at_once_one_fetches(maven: FakeMaven, cache: Path) -> None:
    maven.install(then="time.sleep(0.3)")
    found: list[set[str]] = []
    threads = [threading.Thread(target=lambda: found.append(names_in(kafka_jars.kafka_jars(cache)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{"half.jar", "other.jar"}] * 4
    assert maven.calls == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_an_interrupted_fetch_counts_for_nothing_and_is_repeated(
    maven: FakeMaven, cache: Path, number: signal.Signals
) -> None:
    maven.install(then="time.sleep(300)")
    command = [sys.executable, "-c", OWNER, str(cache)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as owner:  # noqa: S603  # our own interpreter and script
        assert await_that(lambda: any(cache.parent.glob("*/jars/half.jar")), timeout_s=TIMEOUT_S)
        os.killpg(owner.pid, number)
        owner.wait(TIMEOUT_S)
    await_that(lambda: not processes_at(cache.parent), timeout_s=TIMEOUT_S)
    assert processes_at(cache.parent) == []
    assert names_in(cache.parent) == {"kafka.lock"}

    maven.install()
    assert names_in(kafka_jars.kafka_jars(cache)) == {"half.jar", "other.jar"}


def test_other_bytes_are_refused_and_not_kept(maven: FakeMaven, cache: Path) -> None:
    maven.install(then=f"(target / 'half.jar').write_bytes({JAR + b'!'!r})")
    with pytest.raises(LaunchError, match="have the hash"):
        kafka_jars.kafka_jars(cache)
    assert not cache.exists()


def test_a_fetch_that_fails_shows_what_maven_said(maven: FakeMaven, cache: Path) -> None:
    maven.install(then="sys.exit('[ERROR] unreachable')")
    with pytest.raises(MissingPrerequisiteError, match="unreachable"):
        kafka_jars.kafka_jars(cache)
    assert not cache.exists()


def test_without_maven_the_error_says_what_to_install(maven: FakeMaven, cache: Path) -> None:
    (maven.directory / "mvn").unlink()
    with pytest.raises(MissingPrerequisiteError, match="apt-get install maven default-jre-headless"):
        kafka_jars.kafka_jars(cache)


def test_without_java_the_error_says_what_to_install(maven: FakeMaven, cache: Path) -> None:
    with pytest.raises(MissingPrerequisiteError, match=r"`java`.*apt-get install maven default-jre-headless"):
        ApacheKafka(cache=cache).start()


@pytest.mark.parametrize(
    ("version", "missing"),
    [
        (None, ["default-jre-headless"]),
        ("1.8.0_452", ["default-jre-headless"]),
        ("11.0.2", ["default-jre-headless"]),
        ("17.0.15", []),
        ("25", []),
    ],
)
def test_java_is_missing_if_it_is_too_old(
    maven: FakeMaven, cache: Path, version: str | None, missing: list[str]
) -> None:
    if version is not None:
        java = maven.directory / "java"
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
        java.chmod(0o755)
    assert missing_packages(cache) == missing


def test_maven_is_missing_only_while_nothing_is_fetched(maven: FakeMaven, cache: Path) -> None:
    (maven.directory / "mvn").unlink()
    assert missing_packages(cache) == ["default-jre-headless", "maven"]
    cache.mkdir(parents=True)
    assert missing_packages(cache) == ["default-jre-headless"]
