"""No alert, panel or scaling rule asks for a metric, a label or a value that the worker does not have."""

import re

import pytest

from tests.unit.deploy.files import alerts, dashboard, panels, scaling_queries
from tests.unit.deploy.promql import Selector, selectors
from worker.telemetry import METRICS

SPECS = {series: spec for spec in METRICS for series in spec.series}
TARGET_LABELS = frozenset({"job", "instance", "namespace", "pod"})
"""Prometheus' own, on every series of a scraped worker."""
PROMETHEUS_OWN = frozenset({"up"})

EXPRESSIONS = {
    **{f"alert {alert['alert']}": alert["expr"] for alert in alerts()},
    **{
        f"panel {panel['title']} {target['refId']}": target["expr"] for panel in panels() for target in panel["targets"]
    },
    **{f"scaling {number}": query for number, query in enumerate(scaling_queries())},
}
TEMPLATES = {
    **{f"alert {alert['alert']}": [alert["annotations"]["summary"]] for alert in alerts()},
    **{
        f"panel {panel['title']} {target['refId']}": [target["legendFormat"]]
        for panel in panels()
        for target in panel["targets"]
    },
}


def labels_of(selector: Selector) -> frozenset[str]:
    if selector.metric in PROMETHEUS_OWN:
        return TARGET_LABELS
    bucket = {"le"} if selector.metric.endswith("_bucket") else set()
    return TARGET_LABELS | bucket | set(SPECS[selector.metric].label_names)


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_every_metric_and_label_asked_for_is_one_that_the_worker_has(expression: str) -> None:
    for selector in selectors(expression):
        assert selector.metric in SPECS or selector.metric in PROMETHEUS_OWN, f"unknown metric {selector.metric}"
        asked = selector.labels_asked | {label for label, _, _ in selector.matchers}
        assert asked <= labels_of(selector), f"{selector.metric} has no label {asked - labels_of(selector)}"


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_every_label_value_asked_for_is_one_that_the_label_can_have(expression: str) -> None:
    for selector in selectors(expression):
        spec = SPECS.get(selector.metric)
        known = {} if spec is None else {label.name: label.values for label in spec.labels if label.values}
        for label, operator, value in selector.matchers:
            if label in known:
                asked = value.split("|") if operator in ("=~", "!~") else [value]
                assert set(asked) <= set(known[label]), f"{selector.metric}: {label} is never {value}"


@pytest.mark.parametrize("where", TEMPLATES)
def test_every_label_that_a_text_shows_is_left_in_the_result(where: str) -> None:
    found = selectors(EXPRESSIONS[where])
    is_aggregated = any(selector.is_aggregated for selector in found)
    kept = frozenset[str]().union(*(s.labels_asked if is_aggregated else labels_of(s) for s in found))
    for template in TEMPLATES[where]:
        shown = set(re.findall(r"{{ *(?:\$labels\.)?(\w+) *}}", template))
        assert shown <= kept, f"{where} shows {shown - kept}"


@pytest.mark.parametrize(
    ("expression", "flaw"),
    [
        ("sum(attribution_no_such_metric)", "unknown metric attribution_no_such_metric"),
        ("sum by (colour) (attribution_records_total)", "attribution_records_total has no label"),
        ('attribution_records_total{colour="red"}', "attribution_records_total has no label"),
        ("sum(attribution_records)", "unknown metric attribution_records"),
    ],
)
def test_a_wrong_name_would_be_found(expression: str, flaw: str) -> None:
    with pytest.raises(AssertionError, match=flaw):
        test_every_metric_and_label_asked_for_is_one_that_the_worker_has(expression)


def test_a_wrong_value_would_be_found() -> None:
    with pytest.raises(AssertionError, match="outcome is never atributed"):
        test_every_label_value_asked_for_is_one_that_the_label_can_have(
            'attribution_records_total{outcome="atributed"}'
        )


def test_every_metric_of_the_worker_is_on_the_dashboard() -> None:
    shown = {selector.metric for panel in panels() for t in panel["targets"] for selector in selectors(t["expr"])}
    missing = [spec.name for spec in METRICS if not shown & set(spec.series)]
    assert missing == []


def test_the_variables_of_the_dashboard_ask_for_what_the_worker_has() -> None:
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]  # a definition of another form must fail here
            [found] = selectors(selector)
            assert label in labels_of(found)
