"""Every setting, its unit and its default: the only reader of the environment.

`ATTRIBUTION_<SECTION>__<NAME>`, for example `ATTRIBUTION_KAFKA__BOOTSTRAP_SERVERS`. An unknown name and settings
that contradict each other are refused at start.
"""

import os
from collections.abc import Sequence
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from worker.errors import FatalError

PREFIX = "ATTRIBUTION_"


class ConfigurationError(FatalError):
    """The configuration cannot be used; the message names each setting and what is wrong with it."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSettings(Section):
    """The broker, the topics and the consumer group."""

    bootstrap_servers: str = "127.0.0.1:9092"
    client_id: str = "attribution-worker"
    group_id: str = "attribution-worker"
    group_instance_id: str | None = Field(None, description="static membership: a rolling restart moves nothing")
    answers_topic: str = "answers"
    attributions_topic: str = "attributions"
    dead_letter_topic: str = "answers.dead-letter"
    session_timeout_ms: int = Field(30_000, ge=500)
    heartbeat_interval_ms: int = Field(3_000, ge=100)
    rebalance_timeout_ms: int = Field(60_000, ge=500)
    max_poll_interval_ms: int = Field(300_000, ge=1_000)
    rebalance_drain_ms: int = Field(30_000, ge=0, description="how long a revoke waits for records in flight")
    request_timeout_ms: int = Field(30_000, ge=1_000)
    fetch_max_wait_ms: int = Field(500, ge=1)
    max_partition_fetch_bytes: int = Field(4 * 2**20, ge=1_024)
    commit_interval_ms: int = Field(1_000, ge=10)
    commit_timeout_ms: int = Field(10_000, ge=100)
    enable_idempotence: bool = Field(True, description="off only for the embedded broker, which lacks it")
    compression_type: str | None = Field("zstd", pattern="^(gzip|snappy|lz4|zstd)$")
    partitions: int = Field(12, ge=1, description="partitions of a topic made by `topics`")
    replication_factor: int = Field(1, ge=1)
    answers_retention_ms: int = Field(7 * 86_400_000, ge=-1)
    attributions_retention_ms: int = Field(30 * 86_400_000, ge=-1)
    dead_letter_retention_ms: int = Field(90 * 86_400_000, ge=-1)
    message_bytes_max: int = Field(4 * 2**20, ge=1_024, description="max.message.bytes of the topics, and ours")


class PostgresSettings(Section):
    """The system of record."""

    dsn: SecretStr = SecretStr("postgresql://127.0.0.1:5432/attribution")
    writers: int = Field(2, ge=1, description="group commits in flight at once")
    save_batch_max: int = Field(128, ge=1, description="saves coalesced into one transaction")
    save_timeout_s: float = Field(30.0, gt=0)
    connect_timeout_s: float = Field(10.0, gt=0)
    statement_timeout_s: float = Field(30.0, gt=0)
    lock_timeout_s: float = Field(10.0, gt=0)
    idle_in_transaction_timeout_s: float = Field(60.0, gt=0)
    pool_recycle_s: int = Field(1_800, ge=1)
    transaction_pooling: bool = Field(False, description="true behind pgbouncer in transaction mode")
    partitions_ahead_months: int = Field(3, ge=1)
    retention_months: int | None = Field(None, ge=1, description="older monthly partitions are dropped by `migrate`")


class IntakeSettings(Section):
    """What may be in flight at once."""

    records_max: int = Field(200, ge=1)
    bytes_max: int = Field(64 * 2**20, ge=1_024)
    event_bytes_max: int = Field(2**20, ge=64, description="a larger event is a dead letter: too_large")
    sources_max: int = Field(500, ge=1, le=500)


class SettleSettings(Section):
    """Attempts, deadlines and pauses of one record."""

    attempts_max: int = Field(5, ge=1)
    judge_deadline_s: float = Field(120.0, gt=0, description="one attempt's judging; outages do not count")
    backoff_base_s: float = Field(0.5, gt=0)
    backoff_max_s: float = Field(30.0, gt=0)
    outage_backoff_max_s: float = Field(5.0, gt=0)


class JudgeName(StrEnum):
    LOCAL = "local"


class JudgeSettings(Section):
    """Which judge fills the support matrix."""

    name: JudgeName = JudgeName.LOCAL
    key_points_max: int = Field(64, ge=1, le=64)


class CreditSettings(Section):
    """How a key point's coverage is divided."""

    policy: str = Field("max", pattern="^(max|top_k|rank_weighted)$")
    k: int = Field(2, ge=1, description="top_k: how many supports add up")
    omega: tuple[str, ...] = Field(("1", "1/2", "1/4"), description="rank_weighted: fractions, non-increasing from 1")
    grouping: str = Field("source", pattern="^(source|owner)$")


class DeadLetterSettings(Section):
    """Past these limits the worker stops, and stays stopped until `attribution-worker resume`."""

    consecutive_max: int = Field(100, ge=1)
    ratio_max: float = Field(0.5, gt=0, le=1)
    ratio_window: int = Field(1_000, ge=10, description="latest outcomes the ratio is taken over")
    copy_bytes_max: int = Field(2**20, ge=65_536, description="a larger record keeps hash, size and first 64 KiB")


class OutboxSettings(Section):
    """The relay from PostgreSQL to Kafka."""

    batch_max: int = Field(500, ge=1)
    poll_interval_ms: int = Field(500, ge=10)
    publish_timeout_s: float = Field(30.0, gt=0)


class ShutdownSettings(Section):
    drain_s: float = Field(25.0, ge=0, description="how long SIGTERM waits for records in flight")


class TextStorage(StrEnum):
    FULL = "full"
    HASH = "hash"


class LogFormat(StrEnum):
    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class LogSettings(Section):
    level: str = Field("info", pattern="^(debug|info|warning|error)$")
    format: LogFormat = LogFormat.AUTO


class Settings(BaseSettings):
    """The whole configuration, validated as one: single values here, relations between them below."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True)

    kafka: KafkaSettings = KafkaSettings()
    postgres: PostgresSettings = PostgresSettings()
    intake: IntakeSettings = IntakeSettings()
    settle: SettleSettings = SettleSettings()
    judge: JudgeSettings = JudgeSettings()
    credit: CreditSettings = CreditSettings()
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    outbox: OutboxSettings = OutboxSettings()
    shutdown: ShutdownSettings = ShutdownSettings()
    log: LogSettings = LogSettings()
    store_text: TextStorage = TextStorage.FULL

    @model_validator(mode="after")
    def relations_hold(self) -> Self:
        problems = [
            f"{left} ({a}) must be below {right} ({b}): {reason}"
            for left, a, right, b, reason in self._orderings()
            if not a < b
        ]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _orderings(self) -> list[tuple[str, float, str, float, str]]:
        kafka, intake = self.kafka, self.intake
        return [
            (
                "kafka.rebalance_drain_ms",
                kafka.rebalance_drain_ms,
                "kafka.rebalance_timeout_ms",
                kafka.rebalance_timeout_ms,
                "a drain past it loses the partitions before their offsets are committed",
            ),
            (
                "kafka.heartbeat_interval_ms",
                kafka.heartbeat_interval_ms,
                "kafka.session_timeout_ms",
                kafka.session_timeout_ms,
                "a member that beats too rarely is thrown out of its group",
            ),
            (
                "intake.event_bytes_max",
                intake.event_bytes_max,
                "kafka.message_bytes_max",
                kafka.message_bytes_max,
                "an event at the limit must still fit its dead letter",
            ),
            (
                "intake.event_bytes_max",
                intake.event_bytes_max,
                "intake.bytes_max",
                intake.bytes_max,
                "one event must fit in flight",
            ),
        ]

    @field_validator("postgres")
    @classmethod
    def dsn_is_postgresql(cls, postgres: PostgresSettings) -> PostgresSettings:
        if not postgres.dsn.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("postgres.dsn must start with postgresql://")
        return postgres


def load_settings() -> Settings:
    """Settings from the environment.

    Raises:
        ConfigurationError: an unknown name, a bad value, or values that contradict each other.
    """
    unknown = sorted(name for name in os.environ if name.upper().startswith(PREFIX) and not _is_known(name))
    if unknown:
        raise ConfigurationError(f"unknown setting: {', '.join(unknown)} (`attribution-worker config` lists them all)")
    try:
        return Settings()
    except ValidationError as error:
        lines = [f"{variable_name(problem['loc'])}: {problem['msg']}" for problem in error.errors(include_input=False)]
        raise ConfigurationError("\n".join(lines)) from None


def variable_name(path: Sequence[str | int]) -> str:
    """The environment variable that sets the setting at this path."""
    return PREFIX + "__".join(str(part).upper() for part in path)


def _is_known(name: str) -> bool:
    section, _, leaf = name.upper().removeprefix(PREFIX).lower().partition("__")
    field = Settings.model_fields.get(section)
    if field is None:
        return False
    model = field.annotation
    if isinstance(model, type) and issubclass(model, BaseModel):
        return leaf in model.model_fields
    return not leaf
