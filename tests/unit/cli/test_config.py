"""`attribution-worker config`: everything that is set, nothing that is secret."""

import json
import re
from pathlib import Path

import pytest

from tests.support.command_line import RunHere
from worker.settings import PREFIX

SECRET = "hunter2-and-more"  # noqa: S105  # of nothing
SECRETS = {
    "ATTRIBUTION_POSTGRES__DSN": f"postgresql://user:{SECRET}@127.0.0.1:5432/attribution",
    "ATTRIBUTION_LLM__OPENAI_API_KEY": SECRET,
    "ATTRIBUTION_LLM__ANTHROPIC_API_KEY": SECRET,
    "ATTRIBUTION_LLM__OPENAI_BASE_URL": f"https://user:{SECRET}@gateway.internal/v1",
    "ATTRIBUTION_JUDGE__SECRET": SECRET,
}
ENV_EXAMPLE = Path(__file__).parents[3] / ".env.example"


def test_every_setting_is_shown_with_its_value_and_purpose(run: RunHere) -> None:
    ran = run("config")
    assert (ran.exit_code, ran.stderr) == (0, "")
    shown = dict(re.findall(rf"^  ({PREFIX}\w+)=(.*)$", ran.stdout, re.MULTILINE))
    assert shown == json.loads(run("config", "--format", "json").stdout)
    assert "  ATTRIBUTION_KAFKA__GROUP_ID=attribution-worker\n      workers of one group share" in ran.stdout


def test_a_changed_setting_is_marked(run: RunHere) -> None:
    ran = run("config", env={"ATTRIBUTION_INTAKE__RECORDS_MAX": "50", "ATTRIBUTION_STORE_TEXT": "hash"})
    marked = [line for line in ran.stdout.splitlines() if line.startswith("* ")]
    assert marked == ["* ATTRIBUTION_INTAKE__RECORDS_MAX=50", "* ATTRIBUTION_STORE_TEXT=hash"]


@pytest.mark.parametrize("output", ["table", "json", "env"])
def test_no_secret_is_ever_shown(run: RunHere, output: str) -> None:
    ran = run("config", "--format", output, env=SECRETS)
    assert ran.exit_code == 0
    assert SECRET not in ran.stdout + ran.stderr
    if output != "env":
        assert ran.stdout.count("**********") == len(SECRETS)
        assert "https://**********@gateway.internal/v1" in ran.stdout


def test_the_env_format_is_the_documented_example(run: RunHere) -> None:
    assert run("config", "--format", "env").stdout == ENV_EXAMPLE.read_text(encoding="utf-8")


def test_the_example_uncommented_is_the_default_configuration(run: RunHere) -> None:
    lines = [line.removeprefix("#") for line in ENV_EXAMPLE.read_text(encoding="utf-8").splitlines()]
    variables = dict(line.split("=", 1) for line in lines if line.startswith(PREFIX))
    variables["ATTRIBUTION_POSTGRES__DSN"] = ""
    given = run("config", "--format", "json", env=variables)
    assert given.exit_code == 0, given.stderr
    assert given.stdout == run("config", "--format", "json").stdout


def test_values_cannot_command_the_terminal(run: RunHere) -> None:
    ran = run("config", env={"ATTRIBUTION_KAFKA__CLIENT_ID": "\x1b[2J[red]me[/]"})
    assert "\x1b" not in ran.stdout
    assert "[red]me[/]" in ran.stdout


@pytest.mark.parametrize("command", [["config"], ["run"], ["verify"], ["topics"], ["migrate"], ["demo"]])
@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"ATTRIBUTION_KAFKA__BOOTSTRAP_SERVER": "x:1"},
            "ATTRIBUTION_KAFKA__BOOTSTRAP_SERVER (did you mean ATTRIBUTION_KAFKA__BOOTSTRAP_SERVERS?). `attribution",
        ),
        (
            {"ATTRIBUTION_KAFKA__POLL_TIMEOUT_MS": "400000"},
            "kafka.poll_timeout_ms (400000) must be below kafka.max_poll_interval_ms (300000): a member that",
        ),
        (
            {"ATTRIBUTION_KAFKA__PARTITIONS": "many"},
            "ATTRIBUTION_KAFKA__PARTITIONS: Input should be a valid integer, unable to parse string as an integer (",
        ),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_by_every_command(
    run: RunHere, command: list[str], variables: dict[str, str], message: str
) -> None:
    ran = run(*command, env=variables)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("configuration: ")
    assert message in ran.stderr
