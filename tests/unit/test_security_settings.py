from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import SecretStr

from worker.settings import ConfigurationError, Settings, load_settings

SCRAM = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "worker",
    "sasl_password": "geheim",
}
TOKEN = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_token_file": "/run/token"}
MUTUAL = {"security_protocol": "SSL", "ssl_cert_file": "/c.pem", "ssl_key_file": "/k.pem", "ssl_ca_file": "/ca.pem"}


def without(given: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in given.items() if key != name}


@pytest.mark.parametrize("kafka", [{}, SCRAM, TOKEN, MUTUAL, SCRAM | without(MUTUAL, "security_protocol")])
def test_what_belongs_together_is_accepted_together(kafka: Mapping[str, str]) -> None:
    assert Settings().overridden({"kafka": kafka}).kafka.contradictions() == []


@pytest.mark.parametrize(
    ("kafka", "named"),
    [
        (without(SCRAM, "sasl_mechanism"), "needs kafka.sasl_mechanism"),
        (without(SCRAM, "security_protocol"), "needs a kafka.security_protocol with SASL, not PLAINTEXT"),
        (without(SCRAM, "sasl_password"), "SCRAM-SHA-256 needs kafka.sasl_username and kafka.sasl_password"),
        (without(SCRAM, "sasl_username"), "SCRAM-SHA-256 needs kafka.sasl_username and kafka.sasl_password"),
        (TOKEN | {"sasl_password": "geheim"}, "are for kafka.sasl_mechanism SCRAM-SHA-… or PLAIN"),
        (without(TOKEN, "sasl_token_file"), "kafka.sasl_token_file and kafka.sasl_mechanism OAUTHBEARER"),
        (SCRAM | {"sasl_token_file": "/run/token"}, "kafka.sasl_token_file and kafka.sasl_mechanism OAUTHBEARER"),
        (without(MUTUAL, "security_protocol"), "need a kafka.security_protocol with SSL, not PLAINTEXT"),
        ({"ssl_ca_file": "/ca.pem"}, "need a kafka.security_protocol with SSL, not PLAINTEXT"),
        (without(MUTUAL, "ssl_key_file"), "kafka.ssl_cert_file and kafka.ssl_key_file come together"),
    ],
)
def test_what_contradicts_is_refused_by_name_and_without_the_secret(kafka: Mapping[str, str], named: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Settings().overridden({"kafka": kafka})
    assert named in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_a_secret_may_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    file.write_bytes(b" ge heim\r\n")
    for name, value in without(SCRAM, "sasl_password").items():
        monkeypatch.setenv(f"ATTRIBUTION_KAFKA__{name.upper()}", value)
    monkeypatch.setenv("attribution_kafka__sasl_password_file", str(file))
    assert load_settings().kafka.sasl_password == SecretStr(" ge heim"), "the line's end is an editor's, spaces are not"


def test_a_secret_in_a_file_and_in_the_environment_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dsn").write_text("postgresql://a@b/c")
    monkeypatch.setenv("ATTRIBUTION_POSTGRES__DSN_FILE", str(tmp_path / "dsn"))
    monkeypatch.setenv("ATTRIBUTION_POSTGRES__DSN", "postgresql://d@e/f")
    with pytest.raises(ConfigurationError, match="ATTRIBUTION_POSTGRES__DSN_FILE are both set"):
        load_settings()


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff", b"x" * 65_537])
def test_a_file_that_holds_no_secret_is_refused_by_name(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    monkeypatch.setenv("ATTRIBUTION_JUDGE__SECRET_FILE", str(tmp_path / "secret"))
    with pytest.raises(ConfigurationError, match="ATTRIBUTION_JUDGE__SECRET_FILE: the file"):
        load_settings()


def test_only_a_secret_may_be_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTRIBUTION_KAFKA__GROUP_ID_FILE", "/etc/hostname")
    with pytest.raises(ConfigurationError, match="unknown setting: ATTRIBUTION_KAFKA__GROUP_ID_FILE"):
        load_settings()


def test_a_bad_secret_in_a_file_is_not_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dsn").write_text("mysql://user:geheim@host/db")
    monkeypatch.setenv("ATTRIBUTION_POSTGRES__DSN_FILE", str(tmp_path / "dsn"))
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert "geheim" not in str(refused.value)
