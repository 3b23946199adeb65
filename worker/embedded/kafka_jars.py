"""The jars of Apache Kafka: fetched once by Maven, checked against one hash, kept in a cache."""

import fcntl
import hashlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from worker.embedded.failure import LaunchError, MissingPrerequisiteError
from worker.embedded.keeper import Command, Keeper

KAFKA_VERSION = "4.3.1"
POM = Path(__file__).with_name("apache_kafka_pom.xml")
JARS_SHA256 = "2a137944c267c45be92a5db3dbc575543a19f88bfda8d05b27f3d8c58eade7ed"
"""Over the sorted lines `name sha256` of all jars, so that a fetch yields these bytes or nothing."""
INSTALL = "apt-get install maven default-jre-headless"
FETCH_TIMEOUT_S = 600.0
LOCK_POLL_INTERVAL_S = 0.1


def default_cache() -> Path:
    return Path.home() / ".cache" / "attribution-worker" / f"kafka-{KAFKA_VERSION}"


def java() -> Path:
    """Raises MissingPrerequisiteError where there is none."""
    return _program("java")


def _program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise MissingPrerequisiteError(f"Apache Kafka needs `{name}`, which is not installed: {INSTALL}")
    return Path(found)


def kafka_jars(cache: Path | None = None) -> Path:
    """The directory of the jars, fetched if this cache has none yet.

    An interrupted fetch leaves nothing that counts; of several callers at once, one fetches and the others wait.

    Raises:
        MissingPrerequisiteError: they have to be fetched, and there is no `mvn`, or it could not fetch them.
        LaunchError: it brought other bytes than expected.
    """
    directory = cache or default_cache()
    if directory.is_dir():
        return directory
    maven = _program("mvn")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(directory.with_name(f"{directory.name}.lock")):
        if not directory.is_dir():
            _fetch(maven, directory)
    return directory


def _fetch(maven: Path, directory: Path) -> None:
    # Beside the cache: a rename is atomic only within one file system.
    with Keeper(directory.parent) as keeper:
        jars = keeper.directory / "jars"
        # A repository of its own, as the user's may be half written, unwritable or in use.
        repository = f"-Dmaven.repo.local={keeper.directory / 'repository'}"
        options = ("--quiet", "--batch-mode", "--strict-checksums", "-Dstyle.color=never", repository)
        goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}")
        argv = (str(maven), *options, "--file", str(POM), *goal)
        try:
            keeper.run(Command(argv, env=None), FETCH_TIMEOUT_S)
        except LaunchError as error:
            raise MissingPrerequisiteError(f"Apache Kafka {KAFKA_VERSION} cannot be fetched: {error}") from error
        found = jars_sha256(jars)
        if found != JARS_SHA256:
            raise LaunchError(f"the jars of Apache Kafka {KAFKA_VERSION} have the hash {found}, not {JARS_SHA256}")
        jars.rename(directory)


def jars_sha256(jars: Path) -> str:
    """One hash over the names and the bytes of all jars."""
    lines = (f"{jar.name} {hashlib.sha256(jar.read_bytes()).hexdigest()}\n" for jar in sorted(jars.iterdir()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """One fetch is enough for all who want it. The lock ends with its holder, however it ends."""
    deadline = time.monotonic() + FETCH_TIMEOUT_S
    with lock.open("w") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LaunchError(f"another fetch holds {lock} for more than {FETCH_TIMEOUT_S:g} s") from None
                time.sleep(LOCK_POLL_INTERVAL_S)
        yield
