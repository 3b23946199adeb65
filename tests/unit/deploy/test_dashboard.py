"""The dashboard is one that Grafana loads: its structure, what it is provisioned by, and its layout."""

import re
from itertools import combinations
from typing import Any

from tests.unit.deploy.files import DASHBOARD, DEPLOY, compose, dashboard, documents, panels

COLUMNS = 24


def test_the_dashboard_has_what_grafana_needs_to_load_it() -> None:
    read = dashboard()
    assert read["uid"]
    assert read["title"]
    assert read["schemaVersion"] >= 36
    identities = [panel["id"] for panel in read["panels"]]
    assert len(set(identities)) == len(identities)
    for panel in panels():
        assert panel["type"] in {"stat", "timeseries"}
        assert panel["title"]
        assert panel["description"], "a panel says what it shows"
        assert panel["targets"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)


def test_every_query_asks_the_chosen_data_source() -> None:
    for panel in panels():
        for queried in (panel, *panel["targets"]):
            assert queried["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_every_query_is_of_the_chosen_job_and_workers() -> None:
    for panel in panels():
        for target in panel["targets"]:
            chosen = re.findall(r'attribution_\w+{job=~"\$job", instance=~"\$instance"', target["expr"])
            assert len(chosen) == len(re.findall(r"attribution_\w+", target["expr"])), panel["title"]


def test_no_two_panels_overlap() -> None:
    places = [(panel["title"], panel["gridPos"]) for panel in dashboard()["panels"]]
    for title, place in places:
        assert place["x"] + place["w"] <= COLUMNS, title
    for (one, a), (other, b) in combinations(places, 2):
        assert not _overlap(a, b), f"{one} and {other}"


def _overlap(a: dict[str, Any], b: dict[str, Any]) -> bool:
    beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
    above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
    return not (beside or above)


def test_grafana_is_provisioned_with_the_dashboard_and_the_data_source() -> None:
    volumes = dict(volume.split(":")[:2] for volume in compose()["services"]["grafana"]["volumes"])
    mounted = volumes[f"./grafana/{DASHBOARD.name}"]
    [provider_file] = documents(DEPLOY / "grafana/provisioning/dashboards/attribution-worker.yaml")
    [provider] = provider_file["providers"]
    assert mounted.startswith(provider["options"]["path"])
    assert compose()["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == mounted
    [sources] = documents(DEPLOY / "grafana/provisioning/datasources/prometheus.yaml")
    chosen = next(v for v in dashboard()["templating"]["list"] if v["type"] == "datasource")
    assert chosen["current"]["value"] in [source["uid"] for source in sources["datasources"]]
