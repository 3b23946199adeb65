"""The broker, the topics, the consumer group, and how they are reached."""

from enum import StrEnum
from pathlib import Path

from pydantic import Field, SecretStr

from worker.settings.section import Section


class SecurityProtocol(StrEnum):
    """As Kafka names them."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def is_sasl(self) -> bool:
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


class SaslMechanism(StrEnum):
    """As Kafka names them."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


class KafkaSettings(Section):
    """The broker, the topics and the consumer group."""

    bootstrap_servers: str = Field("127.0.0.1:9092", description="host:port, comma separated")
    security_protocol: SecurityProtocol = Field(
        SecurityProtocol.PLAINTEXT, description="PLAINTEXT, SSL (TLS), SASL_PLAINTEXT or SASL_SSL"
    )
    sasl_mechanism: SaslMechanism | None = Field(
        None, description="SCRAM-SHA-256, SCRAM-SHA-512, PLAIN or OAUTHBEARER; for the SASL protocols"
    )
    sasl_username: str | None = Field(None, description="for SCRAM and PLAIN")
    sasl_password: SecretStr | None = Field(None, description="for SCRAM and PLAIN")
    sasl_token_file: Path | None = Field(
        None,
        description="for OAUTHBEARER: a file with the token, read at every log-in; whoever writes it keeps it fresh",
    )
    ssl_ca_file: Path | None = Field(None, description="PEM of the authorities to trust; unset: those of the system")
    ssl_cert_file: Path | None = Field(None, description="PEM of our certificate, where brokers ask clients for one")
    ssl_key_file: Path | None = Field(None, description="PEM of its key, unencrypted; readable to the worker alone")
    client_id: str = Field("attribution-worker", description="how the broker's logs and quotas name us")
    group_id: str = Field("attribution-worker", description="workers of one group share the partitions")
    group_instance_id: str | None = Field(None, description="static membership: a rolling restart moves nothing")
    place_check_s: float = Field(
        5.0, gt=0, description="how often a worker with a group_instance_id looks whether another has taken it over"
    )
    answers_topic: str = Field("answers", description="answer events come in here")
    attributions_topic: str = Field("attributions", description="attributions go out here")
    dead_letter_topic: str = Field("answers.dead-letter", description="records set aside go out here, bytes untouched")
    session_timeout_ms: int = Field(30_000, ge=500, description="silence after which a member is thrown out")
    heartbeat_interval_ms: int = Field(3_000, ge=100, description="how often a member beats")
    rebalance_timeout_ms: int = Field(60_000, ge=500, description="how long the group waits for members to rejoin")
    max_poll_interval_ms: int = Field(300_000, ge=1_000, description="a member that does not poll this long is stuck")
    poll_timeout_ms: int = Field(500, ge=10, description="how long one poll waits for records, or for room")
    outage_backoff_ms: int = Field(1_000, ge=10, description="pause before asking an unreachable broker again")
    rebalance_drain_ms: int = Field(30_000, ge=0, description="how long a revoke waits for records in flight")
    request_timeout_ms: int = Field(30_000, ge=1_000, description="one request to the broker")
    fetch_max_wait_ms: int = Field(500, ge=1, description="how long the broker may hold an empty fetch")
    max_partition_fetch_bytes: int = Field(4 * 2**20, ge=1_024, description="fetched ahead per partition")
    fetch_max_bytes: int = Field(16 * 2**20, ge=1_024, description="fetched ahead from one broker")
    commit_interval_ms: int = Field(1_000, ge=10, description="how often completed offsets are committed")
    commit_timeout_ms: int = Field(10_000, ge=100, description="one commit")
    enable_idempotence: bool = Field(True, description="off only for the embedded broker, which lacks it")
    compression_type: str | None = Field(
        "zstd", pattern="^(gzip|snappy|lz4|zstd)$", description="of what we publish: gzip, snappy, lz4 or zstd"
    )
    partitions: int = Field(12, ge=1, description="partitions of a topic made by `topics`: the unit of scale")
    replication_factor: int = Field(1, ge=1, description="replicas of a topic made by `topics`; 3 in production")
    answers_retention_ms: int = Field(7 * 86_400_000, ge=-1, description="retention of the answers topic")
    attributions_retention_ms: int = Field(30 * 86_400_000, ge=-1, description="retention of the attributions topic")
    dead_letter_retention_ms: int = Field(90 * 86_400_000, ge=-1, description="retention of the dead-letter topic")
    message_bytes_max: int = Field(4 * 2**20, ge=1_024, description="max.message.bytes of the topics, and ours")

    def contradictions(self) -> list[str]:
        """What the security settings say against each other; named, never quoted."""
        protocol, mechanism = self.security_protocol, self.sasl_mechanism
        by_password = mechanism is not None and mechanism is not SaslMechanism.OAUTHBEARER
        by_token = mechanism is SaslMechanism.OAUTHBEARER
        has_password = (self.sasl_username is not None, self.sasl_password is not None)
        has_certificate = (self.ssl_cert_file is not None, self.ssl_key_file is not None)
        rules = {
            f"kafka.security_protocol {protocol} needs kafka.sasl_mechanism": protocol.is_sasl and mechanism is None,
            f"kafka.sasl_mechanism needs a kafka.security_protocol with SASL, not {protocol}": (
                mechanism is not None and not protocol.is_sasl
            ),
            f"kafka.sasl_mechanism {mechanism} needs kafka.sasl_username and kafka.sasl_password": (
                by_password and not all(has_password)
            ),
            "kafka.sasl_username and kafka.sasl_password are for kafka.sasl_mechanism SCRAM-SHA-… or PLAIN": (
                not by_password and any(has_password)
            ),
            "kafka.sasl_token_file and kafka.sasl_mechanism OAUTHBEARER come together": (
                by_token != (self.sasl_token_file is not None)
            ),
            f"kafka.ssl_… files need a kafka.security_protocol with SSL, not {protocol}": (
                not protocol.is_encrypted and (self.ssl_ca_file is not None or any(has_certificate))
            ),
            "kafka.ssl_cert_file and kafka.ssl_key_file come together": any(has_certificate) != all(has_certificate),
        }
        return [rule for rule, broken in rules.items() if broken]
