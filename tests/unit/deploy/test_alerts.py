"""Alert rules: valid to Prometheus' own tool, tested by it, and each with a section in the runbook."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.deploy.files import ALERT_TESTS, ALERTS, DEPLOY, REPOSITORY, RUNBOOK, alerts, documents
from worker.settings import Settings

FETCHED = REPOSITORY / ".cache" / "promtool" / "promtool"
"""Where `deploy/prerequisites.sh promtool` puts it."""
TIMEOUT_S = 60.0


def run_promtool(*arguments: str, directory: Path = ALERTS.parent) -> str:
    """What promtool says.

    Raises:
        AssertionError: it finds a flaw; or there is no promtool, which must not pass for there being none.
    """
    program = str(FETCHED) if FETCHED.exists() else shutil.which("promtool")
    assert program is not None, "promtool is missing: ./deploy/prerequisites.sh promtool"
    done = subprocess.run(  # noqa: S603  # our own fetched program
        [program, *arguments], cwd=directory, check=False, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_takes_the_rules_and_the_configuration() -> None:
    assert f"{len(alerts())} rules found" in run_promtool("check", "rules", ALERTS.name)
    run_promtool("check", "config", "prometheus.yaml")


def test_every_alert_fires_on_its_trouble_and_none_on_a_healthy_worker() -> None:
    run_promtool("test", "rules", ALERT_TESTS.name)


def test_a_rule_that_never_fires_would_be_found(tmp_path: Path) -> None:
    (tmp_path / ALERT_TESTS.name).write_text(ALERT_TESTS.read_text())
    (tmp_path / ALERTS.name).write_text(ALERTS.read_text().replace("_seconds) > 900", "_seconds) > 1e9"))
    with pytest.raises(AssertionError, match="AttributionRecordStuck"):
        run_promtool("test", "rules", ALERT_TESTS.name, directory=tmp_path)


def test_the_tests_of_the_rules_name_every_alert_firing_and_silent() -> None:
    [document] = documents(ALERT_TESTS)
    expected = [case for test in document["tests"] for case in test["alert_rule_test"]]
    names = {alert["alert"] for alert in alerts()}
    assert {case["alertname"] for case in expected if case["exp_alerts"]} == names
    [healthy] = [test for test in document["tests"] if test["name"] == "A healthy worker raises nothing"]
    assert {case["alertname"] for case in healthy["alert_rule_test"] if not case["exp_alerts"]} == names


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_every_alert_says_how_urgent_it_is_what_it_is_and_where_to_read_on(alert: dict[str, dict[str, str]]) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert alert["annotations"]["summary"].endswith(".")
    name = str(alert["alert"])
    assert alert["annotations"]["runbook_url"] == f"{RUNBOOK.relative_to(REPOSITORY)}#{name.lower()}"


def test_the_runbook_has_a_section_for_every_alert_and_no_other() -> None:
    sections = re.findall(r"^### (Attribution\w+)$", RUNBOOK.read_text(), flags=re.MULTILINE)
    assert sections == [alert["alert"] for alert in alerts()], "the same, in the same order"


def test_every_section_of_an_alert_says_causes_and_the_first_action() -> None:
    for section in re.split(r"^### ", RUNBOOK.read_text(), flags=re.MULTILINE)[1:]:
        name = section.split("\n", 1)[0]
        if name.startswith("Attribution"):
            body = section.split("\n## ")[0]
            assert "**Causes" in body or "**First:**" in body, name
            assert "**First:**" in body, name


def test_every_link_of_the_runbook_leads_somewhere() -> None:
    text = RUNBOOK.read_text()
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert (DEPLOY / target).exists(), target


def test_the_limit_alert_comes_at_half_of_each_dead_letter_limit() -> None:
    limits = Settings().dead_letters
    [rule] = [alert for alert in alerts() if alert["alert"] == "AttributionDeadLetterLimitNear"]
    assert f"attribution_dead_letter_ratio) > {limits.ratio_max / 2}" in rule["expr"]
    assert f"attribution_dead_letters_in_a_row) > {limits.consecutive_max // 2}" in rule["expr"]


def test_the_poll_loop_alert_comes_before_the_worker_is_restarted() -> None:
    [rule] = [alert for alert in alerts() if alert["alert"] == "AttributionPollLoopStuck"]
    threshold_s = float(rule["expr"].rsplit("> ", 1)[1])
    assert threshold_s < Settings().http.silent_s_max
