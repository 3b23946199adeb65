"""Everything on one machine: what starts after what, what is reachable, and that every setting exists."""

import re
from typing import Any

import pytest

from tests.unit.deploy.files import DEPLOY, REPOSITORY, compose, documents, manifest
from worker.settings import Settings, load_settings

SERVICES: dict[str, dict[str, Any]] = compose()["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("attribution-worker:")]
JOBS = ["migrate", "topics"]


def test_workers_start_after_the_jobs_and_the_jobs_after_what_they_need() -> None:
    needs = {
        name: {other: how["condition"] for other, how in SERVICES[name].get("depends_on", {}).items()} for name in OURS
    }
    assert needs == {
        "migrate": {"postgres": "service_healthy"},
        "topics": {"kafka": "service_healthy"},
        "worker": dict.fromkeys(JOBS, "service_completed_successfully"),
    }


def test_whatever_keeps_running_has_a_health_check() -> None:
    for name, service in SERVICES.items():
        if name not in OURS:
            assert service["healthcheck"]["test"], name
    assert {name: SERVICES[name].get("healthcheck") for name in OURS} == {
        "migrate": {"disable": True},
        "topics": {"disable": True},
        "worker": None,
    }, "a job serves nothing, a worker's check is the image's"


def test_two_workers_run_under_limits_and_are_given_the_time_to_drain() -> None:
    worker = SERVICES["worker"]
    assert worker["deploy"]["replicas"] == 2
    assert worker["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}
    grace_s = manifest("StatefulSet")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert worker["stop_grace_period"] == f"{grace_s}s"


@pytest.mark.parametrize("name", OURS)
def test_our_containers_can_do_nothing_that_they_need_not(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "ports" not in service


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned_and_every_port_is_on_the_loopback_address(name: str) -> None:
    tag = SERVICES[name]["image"].partition(":")[2]
    assert re.match(r"v?[0-9]", tag), "no latest"
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


def test_kafka_is_the_version_that_the_suite_runs_on() -> None:
    jars = (REPOSITORY / "worker/embedded/kafka_jars.py").read_text()
    assert f'KAFKA_VERSION = "{SERVICES["kafka"]["image"].partition(":")[2]}"' in jars


@pytest.mark.parametrize("name", OURS)
def test_every_setting_of_a_container_is_one_that_the_worker_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in SERVICES[name]["environment"].items():
        # As with the example's file: what it leaves empty has compose's default, what it demands is given.
        given = re.sub(r"\$\{[A-Z_]+(?::-([a-z]*))?(?::\?[^}]*)?\}", lambda found: found[1] or "", value)
        monkeypatch.setenv(variable, given.replace("attribution:@", "attribution:geheim@"))
    assert (
        load_settings().postgres.dsn.get_secret_value() == "postgresql://attribution:geheim@postgres:5432/attribution"
    )


def test_no_secret_stands_in_the_file_and_every_variable_is_explained() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    explained = re.findall(r"^([A-Z_]+)=", (DEPLOY / "compose.env.example").read_text(), flags=re.MULTILINE)
    assert set(re.findall(r"\$\{([A-Z_]+)", text)) == set(explained)
    for name, value in re.findall(r"([A-Z_]+(?:PASSWORD|SECRET|KEY|DSN)): (.+)", text):
        assert "${" in value, name


def test_topics_are_made_by_the_job_alone() -> None:
    assert SERVICES["kafka"]["environment"]["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"


def test_prometheus_finds_the_workers_where_they_serve_and_loads_the_alerts() -> None:
    [configuration] = documents(DEPLOY / "prometheus/prometheus.yaml")
    [scrape] = configuration["scrape_configs"]
    assert scrape["job_name"] == "attribution-worker"
    [discovery] = scrape["dns_sd_configs"]
    assert discovery["names"] == ["worker"]
    assert discovery["port"] == Settings().http.port
    mounted = [volume.split(":")[0] for volume in SERVICES["prometheus"]["volumes"]]
    for loaded in configuration["rule_files"]:
        assert f"./prometheus/{loaded}" in mounted
