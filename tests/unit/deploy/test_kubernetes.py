"""The manifests: valid to Kubernetes' own schemas, hardened, and in agreement with the worker's settings."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.unit.deploy.files import DEPLOY, MANIFESTS, documents, manifest
from worker.settings import Settings, load_settings

KUBERNETES_VERSIONS = ("1.33", "1.37")
OF_OTHERS = {"Kustomization", "ScaledObject", "TriggerAuthentication", "PodMonitor"}
"""Kinds that are not Kubernetes' own; their schemas are not packaged."""

RESOURCES = [
    (path, document) for path in MANIFESTS for document in documents(path) if document["kind"] not in OF_OTHERS
]
MOUNTED = "/run/secrets/attribution"
POD_TEMPLATES = {
    "StatefulSet": manifest("StatefulSet")["spec"]["template"],
    "Job": manifest("Job", "attribution-migrate")["spec"]["template"],
    "CronJob": manifest("CronJob", "attribution-partitions")["spec"]["jobTemplate"]["spec"]["template"],
}


def pod(kind: str) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = POD_TEMPLATES[kind]["spec"]
    return spec


def container(kind: str = "StatefulSet") -> Mapping[str, Any]:
    containers: list[Mapping[str, Any]] = pod(kind)["containers"]
    assert len(containers) == 1
    return containers[0]


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize(("path", "document"), RESOURCES, ids=[path.name for path, _ in RESOURCES])
def test_every_manifest_is_what_kubernetes_takes(path: Path, document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_a_misspelt_field_would_be_found() -> None:
    document = manifest("StatefulSet")
    document["spec"]["template"]["spec"]["terminationGracePeriodSecond"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, KUBERNETES_VERSIONS[-1], strict=True)


def test_kustomize_lists_every_manifest_but_the_example_of_a_secret() -> None:
    for directory in (DEPLOY / "kubernetes", DEPLOY / "kubernetes/migrate"):
        [kustomization] = documents(directory / "kustomization.yaml")
        there = {path.name for path in directory.glob("*.yaml")} - {"kustomization.yaml", "secret.example.yaml"}
        assert set(kustomization["resources"]) == there


@pytest.mark.parametrize("kind", POD_TEMPLATES)
def test_a_pod_runs_without_root_rights_token_or_a_file_system_to_write(kind: str) -> None:
    assert pod(kind)["automountServiceAccountToken"] is False
    context = pod(kind)["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(kind)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container(kind)["resources"].keys() == {"requests", "limits"}
    assert manifest("ServiceAccount")["automountServiceAccountToken"] is False
    assert manifest("Namespace", "attribution")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == (
        "restricted"
    )


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What the worker makes of the ConfigMap and of the Secret as in the example; an unknown name would be refused."""
    for key, value in manifest("Secret")["stringData"].items():
        (tmp_path / key).write_text(value)
    for name, value in manifest("ConfigMap")["data"].items():
        monkeypatch.setenv(name, value.replace(MOUNTED, str(tmp_path)))
    return load_settings()


def test_every_setting_is_one_that_the_worker_takes_and_every_file_is_in_the_secret(settings: Settings) -> None:
    assert settings.kafka.sasl_password is not None
    assert settings.kafka.ssl_ca_file is not None
    assert settings.kafka.ssl_ca_file.exists()
    mounts = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    assert mounts == {"secrets": MOUNTED}
    [volume] = pod("StatefulSet")["volumes"]
    assert volume["secret"]["secretName"] == manifest("Secret")["metadata"]["name"]


def test_no_secret_is_in_the_environment() -> None:
    assert all("secretRef" not in source for source in container()["envFrom"])
    for name, value in manifest("ConfigMap")["data"].items():
        if re.search("PASSWORD|SECRET|KEY|DSN", name):
            assert name.endswith("_FILE")
            assert value.startswith(MOUNTED)


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
def test_the_migrations_have_the_owners_address_and_nothing_else(kind: str) -> None:
    assert container(kind)["args"] == ["migrate", "--stage", "pre"], "old workers may still be running"
    [variable] = container(kind)["env"]
    assert variable == {"name": "ATTRIBUTION_POSTGRES__DSN_FILE", "value": f"{MOUNTED}/postgres-dsn"}
    [volume] = pod(kind)["volumes"]
    assert volume["secret"]["secretName"] == "attribution-migrate"
    assert "postgres-dsn" in manifest("Secret", "attribution-migrate")["stringData"]


def test_after_a_rollout_the_same_job_runs_the_other_stage() -> None:
    [kustomization] = documents(DEPLOY / "kubernetes/migrate_post/kustomization.yaml")
    assert (DEPLOY / "kubernetes/migrate_post" / kustomization["resources"][0]).resolve() == (
        DEPLOY / "kubernetes/migrate"
    )
    [patch] = kustomization["patches"]
    assert patch["target"] == {"kind": "Job", "name": manifest("Job", "attribution-migrate")["metadata"]["name"]}
    [operation] = yaml.safe_load(patch["patch"])
    at: Any = manifest("Job", "attribution-migrate")
    for part in operation["path"].removeprefix("/").split("/"):
        at = at[int(part)] if part.isdigit() else at[part]
    assert (operation["op"], at, operation["value"]) == ("replace", container("Job")["args"], [*at[:-1], "post"])


def test_the_example_of_a_secret_holds_no_secret() -> None:
    for document in documents(DEPLOY / "kubernetes/secret.example.yaml"):
        for value in document["stringData"].values():
            assert "REPLACE" in value or re.match(r"postgresql://[A-Z]+:PASSWORD@HOST:5432/attribution", value)


def test_a_pod_is_given_the_time_to_drain_commit_and_publish(settings: Settings) -> None:
    given = settings
    drain_s, commit_s = given.shutdown.drain_s, given.kafka.commit_timeout_ms / 1000
    # The last commit may have to wait for one that is on its way.
    needed_s = drain_s + 2 * commit_s + given.outbox.publish_timeout_s
    assert pod("StatefulSet")["terminationGracePeriodSeconds"] > needed_s


def test_a_pod_that_comes_back_is_the_same_member_of_the_group() -> None:
    named = {variable["name"]: variable["valueFrom"] for variable in container()["env"]}
    assert named["ATTRIBUTION_KAFKA__GROUP_INSTANCE_ID"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert manifest("StatefulSet")["spec"]["serviceName"] == manifest("Service")["metadata"]["name"]


def test_probes_ask_the_port_that_is_served_and_wait_longer_than_an_answer_takes(settings: Settings) -> None:
    given = settings.http
    [port] = container()["ports"]
    assert port["containerPort"] == given.port
    pages = {kind: container()[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert pages == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
    for kind in pages:
        probe = container()[f"{kind}Probe"]
        assert probe["httpGet"]["port"] == port["name"]
        assert probe["timeoutSeconds"] > given.request_timeout_s


def test_the_network_lets_in_who_scrapes_and_lets_out_to_what_the_worker_uses() -> None:
    policy = manifest("NetworkPolicy")["spec"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    [expression] = policy["podSelector"]["matchExpressions"]
    labels = {template["metadata"]["labels"]["app.kubernetes.io/name"] for template in POD_TEMPLATES.values()}
    assert set(expression["values"]) == labels
    [let_in] = policy["ingress"]
    assert [port["port"] for port in let_in["ports"]] == [container()["ports"][0]["containerPort"]]
    assert sorted({port["port"] for rule in policy["egress"] for port in rule["ports"]}) == [53, 443, 5432, 9093]


def test_keda_scales_what_runs_on_the_group_and_topic_that_it_reads(settings: Settings) -> None:
    given = settings
    scaled = manifest("ScaledObject")["spec"]
    target = manifest("StatefulSet")
    assert scaled["scaleTargetRef"] == {
        "apiVersion": target["apiVersion"],
        "kind": target["kind"],
        "name": target["metadata"]["name"],
    }
    assert "replicas" not in target["spec"], "applying the manifests again must not undo KEDA's number"
    kafka = next(trigger["metadata"] for trigger in scaled["triggers"] if trigger["type"] == "kafka")
    assert kafka["consumerGroup"] == given.kafka.group_id
    assert kafka["topic"] == given.kafka.answers_topic
    assert kafka["bootstrapServers"] == given.kafka.bootstrap_servers
    assert int(kafka["lagThreshold"]) >= given.intake.records_max


def test_there_are_never_more_workers_than_partitions(settings: Settings) -> None:
    scaled = manifest("ScaledObject")["spec"]
    assert 1 < scaled["minReplicaCount"] <= scaled["maxReplicaCount"] <= settings.kafka.partitions


def test_age_scales_before_it_alerts() -> None:
    triggers = {trigger["name"]: trigger for trigger in manifest("ScaledObject")["spec"]["triggers"]}
    age = triggers["oldest-unfinished"]
    assert age["metricType"] == "Value", "an age is no sum to be divided by the number of workers"
    [threshold_s] = re.findall(
        r"attribution_oldest_unfinished_seconds\) > (\d+)", (DEPLOY / "prometheus/alerts.yaml").read_text()
    )
    assert float(age["metadata"]["threshold"]) < float(threshold_s)


def test_a_disruption_takes_one_worker_at_a_time() -> None:
    budget = manifest("PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == manifest("StatefulSet")["spec"]["selector"]


def test_prometheus_scrapes_the_pods_under_the_name_that_the_alerts_ask_for() -> None:
    monitor = manifest("PodMonitor")["spec"]
    assert monitor["selector"] == manifest("StatefulSet")["spec"]["selector"]
    label = POD_TEMPLATES["StatefulSet"]["metadata"]["labels"][monitor["jobLabel"]]
    assert f'up{{job="{label}"}}' in (DEPLOY / "prometheus/alerts.yaml").read_text()
    [endpoint] = monitor["podMetricsEndpoints"]
    assert endpoint["port"] == container()["ports"][0]["name"]
