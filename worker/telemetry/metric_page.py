"""The metric list as a page for people: `python -m worker.telemetry.metric_page > docs/metrics.md`."""

import sys

from worker.telemetry.metric_list import METRICS, Label, Spec

HEAD = """# Metrics

At `/metrics`, as Prometheus text, or OpenMetrics where that is asked for. Made from the one typed list in
`worker/telemetry/metric_list.py`; do not edit by hand. Names are a contract with dashboards and alerts.

| metric | type | unit | labels | what it says |
|---|---|---|---|---|
"""


def metric_page() -> str:
    """Markdown, a row per metric, in the list's order."""
    return HEAD + "".join(_row(spec) for spec in METRICS)


def _row(spec: Spec) -> str:
    labels = "; ".join(_told(label) for label in spec.labels)
    name = spec.series[0].removesuffix("_bucket")
    return f"| `{name}` | {spec.kind.value} | {spec.unit.value} | {labels} | {spec.help} |\n"


def _told(label: Label) -> str:
    return f"`{label.name}`: {', '.join(label.values) or label.bounded_by}"


if __name__ == "__main__":
    sys.stdout.write(metric_page())
