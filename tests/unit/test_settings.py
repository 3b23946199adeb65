"""Settings: from the environment alone, refused as a whole when any part cannot work, and secret where they must be."""

import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr, ValidationError

from worker.errors import FatalError
from worker.settings import (
    ConfigurationError,
    JudgeName,
    PostgresSettings,
    Settings,
    TextStorage,
    load_settings,
    variable_name,
)

SECRET = "hunter2-and-more"  # noqa: S105  # of nothing


def load(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(f"ATTRIBUTION_{name}", value)
    return load_settings()


def refusal(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        load(monkeypatch, **variables)
    return str(refused.value)


def leaves(settings: Settings) -> dict[str, tuple[object, str | None]]:
    """Each variable with its value and description."""
    found: dict[str, tuple[object, str | None]] = {}
    for section, value in settings:
        if isinstance(value, BaseModel):
            for name, leaf in value:
                found[variable_name([section, name])] = leaf, type(value).model_fields[name].description
        else:
            found[variable_name([section])] = value, Settings.model_fields[section].description
    return found


def test_the_defaults_agree_with_each_other() -> None:
    assert load_settings() == Settings()


def test_every_setting_says_what_it_is_for() -> None:
    assert [name for name, (_, description) in leaves(Settings()).items() if not description] == []


def test_limits_and_waits_have_their_unit_last() -> None:
    units = ("_ms", "_s", "_bytes", "_max", "_months", "_bytes_max", "_s_max", "_per_minute", "_per_hour", "_per_day")
    numbers = [
        name
        for name, (value, _) in leaves(Settings()).items()
        if type(value) in (int, float) and any(word in name for word in ("TIMEOUT", "INTERVAL", "RETENTION", "BACKOFF"))
    ]
    assert numbers
    assert [name for name in numbers if not name.lower().endswith(units)] == []


def test_the_environment_sets_sections_and_what_is_outside_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(
        monkeypatch,
        KAFKA__GROUP_ID="mine",
        POSTGRES__RETENTION_MONTHS="6",
        CREDIT__OMEGA='["1", "1/3"]',
        JUDGE__NAME="local",
        STORE_TEXT="hash",
    )
    assert settings.kafka.group_id == "mine"
    assert settings.postgres.retention_months == 6
    assert settings.credit.omega == ("1", "1/3")
    assert settings.judge.name is JudgeName.LOCAL
    assert settings.store_text is TextStorage.HASH


def test_names_are_read_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("attribution_kafka__group_id", "mine")
    assert load_settings().kafka.group_id == "mine"


def test_an_empty_value_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    # A compose file or a Kubernetes manifest that passes a variable on has it empty where it is unset.
    settings = load(monkeypatch, KAFKA__PARTITIONS="", CREDIT__OMEGA="", POSTGRES__DSN="", STORE_TEXT="")
    assert settings == Settings()


def test_what_is_not_ours_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTRIBUTIONS_OF_OTHERS", "1")
    monkeypatch.setenv("KAFKA__GROUP_ID", "other")
    assert load_settings() == Settings()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("KAFKA__BOOTSTRAP_SERVER", "ATTRIBUTION_KAFKA__BOOTSTRAP_SERVERS"),
        ("POSTGRES__DNS", "ATTRIBUTION_POSTGRES__DSN"),
        ("KAFKA_GROUP_ID", "ATTRIBUTION_KAFKA__GROUP_ID"),
        ("STORE_TEXTS", "ATTRIBUTION_STORE_TEXT"),
        ("KAFKA__GROUP_ID__X", "ATTRIBUTION_KAFKA__GROUP_ID"),
    ],
)
def test_an_unknown_name_is_refused_with_the_one_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    assert refusal(monkeypatch, **{name: "x"}) == (
        f"unknown setting: ATTRIBUTION_{name} (did you mean {meant}?). `attribution-worker config` lists them all"
    )


@pytest.mark.parametrize("name", ["KAFKA", "SOMETHING_ELSE_ENTIRELY"])
def test_an_unknown_name_like_no_other_is_refused_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert refusal(monkeypatch, **{name: ""}).startswith(f"unknown setting: ATTRIBUTION_{name}. ")


def test_all_unknown_names_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told = refusal(monkeypatch, AAA="1", BBB="2")
    assert "ATTRIBUTION_AAA, ATTRIBUTION_BBB" in told


def test_each_bad_value_is_a_line_with_its_variable_and_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    told = refusal(monkeypatch, KAFKA__PARTITIONS="0", CREDIT__POLICY="best", SHUTDOWN__DRAIN_S="soon").splitlines()
    assert [line.split(": ")[0] for line in sorted(told)] == [
        "ATTRIBUTION_CREDIT__POLICY",
        "ATTRIBUTION_KAFKA__PARTITIONS",
        "ATTRIBUTION_SHUTDOWN__DRAIN_S",
    ]
    assert all(line.endswith(")") for line in told), "what the setting is for comes last"


@pytest.mark.parametrize("value", ["1,1/2", "[1", "{}]", "one"])
def test_a_list_that_is_no_json_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    # pydantic-settings names only the section, in a traceback
    assert refusal(monkeypatch, CREDIT__OMEGA=value).startswith("ATTRIBUTION_CREDIT__OMEGA: not JSON (")


def test_an_unknown_name_within_a_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    told = refusal(monkeypatch, LIMITER__MODELS='{"m": {"requests_per_minut": 1}}')
    assert "REQUESTS_PER_MINUT: there is no such setting" in told


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"KAFKA__POLL_TIMEOUT_MS": "300000"}, "kafka.poll_timeout_ms (300000) must be below kafka.max_poll_interval"),
        ({"KAFKA__HEARTBEAT_INTERVAL_MS": "30000"}, "kafka.heartbeat_interval_ms (30000) must be below kafka.session_"),
        (
            {"KAFKA__REBALANCE_DRAIN_MS": "40000"},
            "kafka.rebalance_drain_ms + 2 * kafka.commit_timeout_ms (60000) must be below kafka.rebalance_timeout_ms",
        ),
        ({"INTAKE__EVENT_BYTES_MAX": "4194304"}, "intake.event_bytes_max (4194304) must be below kafka.message_bytes"),
        ({"INTAKE__BYTES_MAX": "1024"}, "intake.event_bytes_max (1048576) must be below intake.bytes_max (1024)"),
        (
            {"POSTGRES__ANSWERS_RETENTION_MONTHS": "6"},
            "postgres.answers_retention_months (6) must not be below postgres.retention_months",
        ),
        (
            {"POSTGRES__ANSWERS_RETENTION_MONTHS": "6", "POSTGRES__RETENTION_MONTHS": "7"},
            "postgres.answers_retention_months (6) must not be below postgres.retention_months",
        ),
        (
            {
                "POSTGRES__ANSWERS_RETENTION_MONTHS": "1",
                "POSTGRES__RETENTION_MONTHS": "1",
                "KAFKA__ANSWERS_RETENTION_MS": "2419200000",
            },
            "postgres.answers_retention_months (1) must outlast kafka.answers_retention_ms",
        ),
        (
            {
                "POSTGRES__ANSWERS_RETENTION_MONTHS": "6",
                "POSTGRES__RETENTION_MONTHS": "6",
                "KAFKA__ANSWERS_RETENTION_MS": "-1",
            },
            "postgres.answers_retention_months (6) must outlast kafka.answers_retention_ms",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_both_values_and_why(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], told: str
) -> None:
    message = refusal(monkeypatch, **variables)
    assert told in message
    assert message.count(": ") >= 1, "and the reason"


def test_answers_may_be_forgotten_after_their_attributions_and_their_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, POSTGRES__ANSWERS_RETENTION_MONTHS="6", POSTGRES__RETENTION_MONTHS="6")
    assert settings.postgres.answers_retention_months == 6


def test_contradictions_are_told_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told = refusal(monkeypatch, KAFKA__POLL_TIMEOUT_MS="300000", INTAKE__BYTES_MAX="1024")
    assert told.count(" must be below ") == 2


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://127.0.0.1:5432/attribution",
        "postgres://user@host",
        f"postgresql://user:{SECRET}@host:5432/db?sslmode=require",
        f"postgresql://user:{SECRET}@first:5432,second:5433/db",
        "postgresql://user:p%2Fa%40s%3Fs%23@[::1]:5432/db",
        "postgresql:///db?host=/var/run/postgresql",
    ],
)
def test_an_address_of_a_database_is_taken_as_it_is(dsn: str) -> None:
    assert PostgresSettings(dsn=SecretStr(dsn)).dsn.get_secret_value() == dsn


@pytest.mark.parametrize(
    "dsn",
    [
        SECRET,
        f"mysql://user:{SECRET}@host/db",
        f"postgresql://user:{SECRET}/more@host:5432/db",
        f"postgresql://user:{SECRET}#more@host:5432/db",
        f"postgresql://user:{SECRET}?more@host:5432/db",
        f"postgresql://user:12/{SECRET}@host/db",
        f"postgresql://user:{SECRET}@host:port/db",
        f"postgresql://user:{SECRET}@host:99999/db",
        f"postgresql://user:{SECRET}@[::1/db",
        f"postgresql://host:{SECRET}",
    ],
)
def test_an_address_that_would_be_read_wrong_is_refused_without_a_word_of_it(
    monkeypatch: pytest.MonkeyPatch, dsn: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(monkeypatch, POSTGRES__DSN=dsn)
    told = str(refused.value)
    assert told.startswith("ATTRIBUTION_POSTGRES__DSN: ")
    assert SECRET not in "".join(traceback.format_exception(refused.value))


@given(st.text())
def test_no_password_is_ever_part_of_a_refusal(password: str) -> None:
    marked = f"hunter2{password}hunter2"
    for dsn in (f"postgresql://user:{marked}@host:5432/db", f"{marked}://user@host", f"postgresql://user@{marked}"):
        shown = ""
        try:
            shown = repr(PostgresSettings(dsn=SecretStr(dsn)))
        except ValidationError as error:
            shown = "".join(traceback.format_exception(error))
        assert "hunter2" not in shown


@pytest.mark.parametrize("show", [repr, str, lambda settings: settings.model_dump_json()])
def test_settings_shown_as_a_whole_show_no_secret(monkeypatch: pytest.MonkeyPatch, show: Any) -> None:
    settings = load(
        monkeypatch,
        POSTGRES__DSN=f"postgresql://user:{SECRET}@host/db",
        LLM__OPENAI_API_KEY=SECRET,
        JUDGE__SECRET=SECRET,
    )
    assert SECRET not in show(settings)


def test_a_configuration_error_stops_the_worker() -> None:
    assert issubclass(ConfigurationError, FatalError)


def test_overriding_leaves_the_original_and_what_is_not_named() -> None:
    settings = Settings().overridden({"kafka": {"group_id": "first"}})
    changed = settings.overridden({"kafka": {"partitions": 3, "client_id": None}, "credit": {"policy": "top_k"}})
    assert (settings.kafka.partitions, settings.credit.policy) == (Settings().kafka.partitions, "max")
    assert (changed.kafka.group_id, changed.kafka.partitions, changed.credit.policy) == ("first", 3, "top_k")
    assert changed.kafka.client_id == settings.kafka.client_id


def test_overriding_keeps_track_of_what_was_set() -> None:
    """The demo starts a service of its own unless its address was given."""
    settings = Settings().overridden({"kafka": {"partitions": 3}})
    assert "bootstrap_servers" not in settings.kafka.model_fields_set
    assert "bootstrap_servers" in settings.overridden({"kafka": {"bootstrap_servers": "x:1"}}).kafka.model_fields_set


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"credit": {"policy": "best"}}, "ATTRIBUTION_CREDIT__POLICY: "),
        ({"kafka": {"poll_timeout_ms": 300_000}}, "kafka.poll_timeout_ms (300000) must be below"),
        ({"kafka": {"polls": 1}}, "ATTRIBUTION_KAFKA__POLLS: there is no such setting"),
    ],
)
def test_overriding_is_validated_as_a_whole(changes: dict[str, dict[str, object]], told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Settings().overridden(changes)
    assert told in str(refused.value)


def test_settings_cannot_be_changed() -> None:
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.kafka.group_id = "other"  # type: ignore[misc]  # it is what is tried
    with pytest.raises(ValidationError):
        settings.store_text = TextStorage.HASH  # type: ignore[misc]  # the same
