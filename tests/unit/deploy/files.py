"""What is deployed, read from the files as it stands there."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[3]
DEPLOY = REPOSITORY / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
ALERT_TESTS = DEPLOY / "prometheus" / "alerts_test.yaml"
DASHBOARD = DEPLOY / "grafana" / "attribution-worker.json"
RUNBOOK = DEPLOY / "RUNBOOK.md"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("**/*.yaml"))


def documents(path: Path) -> Sequence[dict[str, Any]]:
    """The YAML documents of a file."""
    return list(yaml.safe_load_all(path.read_text()))


def alerts() -> Sequence[dict[str, Any]]:
    [document] = documents(ALERTS)
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> Sequence[dict[str, Any]]:
    """The dashboard's panels without its rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return read


def manifest(kind: str, name: str = "attribution-worker") -> dict[str, Any]:
    [found] = [
        document
        for path in MANIFESTS
        for document in documents(path)
        if document["kind"] == kind and document.get("metadata", {}).get("name") == name
    ]
    return found


def compose() -> dict[str, Any]:
    [document] = documents(DEPLOY / "compose.yaml")
    return document


def scaling_queries() -> Iterator[str]:
    """What KEDA asks Prometheus."""
    for trigger in manifest("ScaledObject")["spec"]["triggers"]:
        if trigger["type"] == "prometheus":
            yield trigger["metadata"]["query"]
