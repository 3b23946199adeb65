"""Every setting, its unit and its default: the only reader of the environment.

`ATTRIBUTION_<SECTION>__<NAME>`, for example `ATTRIBUTION_KAFKA__BOOTSTRAP_SERVERS`. A secret may be in a file instead,
which the same name with `_FILE` behind it names. An unknown name and settings that contradict each other are refused at
start.
"""

import json
import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Annotated, Self, Union, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from worker.errors import FatalError

PREFIX = "ATTRIBUTION_"
PORT_MAX = 65_535
FILE_SUFFIX = "_FILE"
SECRET_FILE_BYTES_MAX = 65_536


class ConfigurationError(FatalError):
    """The configuration cannot be used; the message names each setting and what is wrong with it."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


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


class PostgresSettings(Section):
    """The system of record."""

    dsn: SecretStr = Field(
        SecretStr("postgresql://127.0.0.1:5432/attribution"),
        description="postgresql://user:password@host:port/database; TLS: ?sslmode=verify-full&sslrootcert=FILE",
    )
    writers: int = Field(1, ge=1, description="group commits in flight at once; a second one makes smaller groups")
    save_batch_max: int = Field(128, ge=1, description="saves coalesced into one transaction")
    save_timeout_s: float = Field(30.0, gt=0, description="one group commit, whatever its records' deadlines")
    connect_timeout_s: float = Field(10.0, gt=0, description="one connection attempt, or a wait for the pool")
    statement_timeout_s: float = Field(30.0, gt=0, description="one statement")
    lock_timeout_s: float = Field(10.0, gt=0, description="one lock")
    idle_in_transaction_timeout_s: float = Field(60.0, gt=0, description="an abandoned transaction is ended")
    transient_retries_max: int = Field(2, ge=0, description="a deadlock or broken connection: so often again, at once")
    pool_recycle_s: int = Field(1_800, ge=1, description="connections older than this are replaced")
    transaction_pooling: bool = Field(False, description="true behind pgbouncer in transaction mode")
    partitions_ahead_months: int = Field(3, ge=1, description="monthly partitions made ahead")
    retention_months: int | None = Field(
        None, ge=1, description="older monthly partitions are dropped; unset keeps all"
    )

    @field_validator("dsn")
    @classmethod
    def dsn_is_an_address(cls, dsn: SecretStr) -> SecretStr:
        flaw = _flaw_of_dsn(dsn.get_secret_value())
        if flaw is not None:
            raise ValueError(flaw)
        return dsn


class IntakeSettings(Section):
    """What may be in flight at once."""

    records_max: int = Field(200, ge=1, description="records fetched and not yet settled")
    bytes_max: int = Field(64 * 2**20, ge=1_024, description="bytes of those records")
    event_bytes_max: int = Field(2**20, ge=64, description="a larger event is a dead letter: too_large")
    sources_max: int = Field(500, ge=1, le=500, description="an event with more is a dead letter: invalid_event")


class SettleSettings(Section):
    """Attempts, deadlines and pauses of one record."""

    attempts_max: int = Field(5, ge=1, description="tries before a record is set aside; outages do not count")
    judge_deadline_s: float = Field(120.0, gt=0, description="one attempt's judging")
    backoff_base_s: float = Field(0.5, gt=0, description="pause after the first failure; doubles, with jitter")
    backoff_max_s: float = Field(30.0, gt=0, description="longest pause between attempts")
    outage_backoff_max_s: float = Field(5.0, gt=0, description="longest pause between looks at something down")


class JudgeName(StrEnum):
    LOCAL = "local"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class JudgeSettings(Section):
    """Which judge fills the support matrix, and how it is asked."""

    name: JudgeName = Field(
        JudgeName.LOCAL, description="local (no key, no network; never for paying anyone), openai or anthropic"
    )
    model: str | None = Field(None, description="of an LLM judge, such as gpt-5-mini or claude-haiku-4-5")
    fallback_name: JudgeName | None = Field(None, description="an LLM judge to ask while the first one is down")
    fallback_model: str | None = Field(None, description="its model; the method of what it judges names it")
    secret: SecretStr | None = Field(
        None, description="16 bytes or more, the same for all workers: no publisher can guess how its text is fenced"
    )
    key_points_max: int = Field(64, ge=1, le=64, description="key points of one answer")
    weighting: str = Field("uniform", pattern="^(uniform|importance)$", description="uniform, or importance (1 to 3)")
    refinement: str = Field(
        "folded", pattern="^(folded|own_call|off)$", description="drop redundant key points: folded, own_call or off"
    )
    scoring_mode: str = Field(
        "answer", pattern="^(answer|source|pair)$", description="what one scoring call scores: answer, source or pair"
    )


class LlmSettings(Section):
    """The attribution LLM: access, deadlines and sizes of a call."""

    openai_api_key: SecretStr | None = Field(None, description="for judge openai")
    openai_base_url: str | None = Field(None, description="another server that speaks OpenAI's API (vLLM, Azure)")
    anthropic_api_key: SecretStr | None = Field(None, description="for judge anthropic")
    anthropic_base_url: str | None = Field(None, description="another server that speaks Anthropic's API")
    call_timeout_s: float = Field(120.0, gt=0, lt=3_600, description="one call, whatever it waits for")
    transient_failures_max: int = Field(4, ge=1, description="failures of one call, the provider being up, per attempt")
    input_tokens_max: int = Field(100_000, ge=1_000, description="of one call; sources that do not fit are split")
    output_tokens_max: int = Field(16_000, ge=500, description="of one reply")
    reasoning_tokens_max: int = Field(0, ge=0, description="added to a reply's cap, for models that reason")
    token_margin: float = Field(1.15, ge=1, description="estimates are times this: other tokenizers count more")


class ModelLimits(Section):
    """What one account may use of one model; unset is unlimited, until the provider's own headers name a limit."""

    requests_per_minute: int | None = Field(None, ge=1, description="calls a minute; unset: as the provider says")
    tokens_per_minute: int | None = Field(None, ge=1, description="input and output tokens together, a minute")
    input_tokens_per_minute: int | None = Field(None, ge=1, description="input tokens a minute")
    output_tokens_per_minute: int | None = Field(None, ge=1, description="output tokens a minute")
    calls_in_flight: int = Field(64, ge=1, description="calls to the model at once, in this process")


class LimiterSettings(ModelLimits):
    """How fast the attribution LLM is called; the limits here are of every model that `models` does not name."""

    models: Mapping[str, ModelLimits] = Field(
        {}, description='limits by model, as JSON: {"gpt-5-mini": {"requests_per_minute": 600}}'
    )
    learn_limits: bool = Field(True, description="take over limits that the provider's headers name and we do not")
    burst_s: float = Field(50.0, gt=0, le=60, description="seconds of the limits that may be saved up for a rush")
    initial_burst_s: float = Field(5.0, gt=0, description="seconds of the limits that may be used at once after start")
    unseen_s_max: float = Field(
        10.0, gt=0, description="longest that a call takes to arrive, or goes on at the provider when we hang up"
    )
    wait_max_s: float = Field(600.0, gt=0, description="a call not granted by then waits as in an outage")
    long_wait_s: float = Field(30.0, gt=0, description="a wait this long is logged")
    slowdown: float = Field(0.5, gt=0, lt=1, description="speed after a refusal (429, 529), as a share of before")
    slowdown_floor: float = Field(0.05, gt=0, le=1, description="lowest speed, as a share of the limits")
    recovery_s: float = Field(120.0, gt=0, description="from a standstill back to full speed, in equal steps")
    pause_s: float = Field(1.0, gt=0, description="after a refusal that names no wait; doubles while they go on")
    pause_max_s: float = Field(300.0, gt=0, description="longest pause, whatever Retry-After asks for")
    outage_failures_max: int = Field(5, ge=1, description="failures in a row after which a provider counts as down")
    outage_probe_s: float = Field(15.0, gt=0, description="how often one call looks whether it is up again")

    def of_model(self, model: str) -> ModelLimits:
        """The limits of one model."""
        return self.models.get(model, self)


def _not_a_float(value: object) -> object:
    """JSON's numbers arrive as floats, which hold few prices exactly."""
    if isinstance(value, float):
        raise ValueError('give money as a string, such as "0.25"')  # noqa: TRY004  # pydantic reports ValueErrors only
    return value


Money = Annotated[
    Decimal, BeforeValidator(_not_a_float), Field(ge=0, allow_inf_nan=False, max_digits=20, decimal_places=10)
]
UnitPrice = Annotated[
    Decimal, BeforeValidator(_not_a_float), Field(ge=0, allow_inf_nan=False, max_digits=12, decimal_places=6)
]


class ModelPrices(Section):
    """US dollars per million tokens; reasoning costs what output costs."""

    input: UnitPrice
    output: UnitPrice
    cache_read: UnitPrice
    cache_write: UnitPrice


class BudgetSettings(Section):
    """What the attribution LLM may cost, over all workers, by UTC hour and day; unset is unlimited."""

    total_usd_per_hour: Money | None = Field(None, description="spent: intake pauses until the hour ends")
    total_usd_per_day: Money | None = Field(None, description="spent: intake pauses until the day ends")
    tenant_usd_per_hour: Money | None = Field(
        None, description="of each tenant; spent: its records are set aside, replayably, as budget_exhausted"
    )
    tenant_usd_per_day: Money | None = Field(None, description="of each tenant, as above")
    lease_fraction: Decimal = Field(
        Decimal("0.02"), gt=0, le=1, description="of a budget's rest, what a worker takes at once to spend on its own"
    )


class ReuseSettings(Section):
    """Cached answers are served all day: the judgement of one is copied to the next of the same content, at no cost."""

    enabled: bool = Field(True, description="within a tenant and method, where texts are stored in full")
    age_days_max: int = Field(30, ge=1, description="older judgements are made anew, and their entries dropped")


class CreditSettings(Section):
    """How a key point's coverage is divided."""

    policy: str = Field("max", pattern="^(max|top_k|rank_weighted)$", description="max, top_k or rank_weighted")
    k: int = Field(2, ge=1, description="top_k: how many supports add up")
    omega: tuple[str, ...] = Field(
        ("1", "1/2", "1/4"), description='rank_weighted: JSON list of fractions, non-increasing from "1"'
    )
    grouping: str = Field("source", pattern="^(source|owner)$", description="source, or owner (Owen value)")


class DeadLetterSettings(Section):
    """Past these limits the worker stops, and stays stopped until `attribution-worker resume`."""

    consecutive_max: int = Field(100, ge=1, description="dead letters with no settled answer in between")
    ratio_max: float = Field(0.5, gt=0, le=1, description="share of dead letters among the latest outcomes")
    ratio_window: int = Field(1_000, ge=10, description="latest outcomes the ratio is taken over")
    copy_bytes_max: int = Field(2**20, ge=65_536, description="a larger record keeps hash, size and first 64 KiB")


class OutboxSettings(Section):
    """The relay from PostgreSQL to Kafka."""

    batch_max: int = Field(500, ge=1, description="messages published and deleted in one transaction")
    poll_interval_ms: int = Field(500, ge=10, description="how often to look when nothing woke the relay")
    publish_timeout_s: float = Field(30.0, gt=0, description="one batch's acknowledgement")


class ShutdownSettings(Section):
    """Leaving."""

    drain_s: float = Field(25.0, ge=0, description="how long SIGTERM waits for records in flight")


class TextStorage(StrEnum):
    FULL = "full"
    HASH = "hash"


class LogFormat(StrEnum):
    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class LogSettings(Section):
    """One canonical line per record, on standard error."""

    level: str = Field("info", pattern="^(debug|info|warning|error)$", description="debug, info, warning or error")
    format: LogFormat = Field(LogFormat.AUTO, description="json, console, or auto: console on a terminal")


class HttpSettings(Section):
    """/livez, /readyz and /metrics. Off unless asked for: several workers may share a machine, a port is one's own."""

    enabled: bool = Field(False, description="serve them; the container image does")
    host: str = Field("127.0.0.1", description="loopback unless set; it has no access control of its own")
    port: int = Field(9464, ge=0, le=PORT_MAX, description="0 takes a free one, told in the log")
    request_timeout_s: float = Field(5.0, gt=0, description="one request and its response")
    connections_max: int = Field(64, ge=1, description="at once; more are turned away")
    silent_s_max: float = Field(120.0, gt=0, description="a poll loop that does not turn for this long is not live")
    starved_s_max: float = Field(
        300.0, gt=0, description="a worker that reads nothing for this long although records are there is not live"
    )
    look_interval_s: float = Field(15.0, gt=0, description="how often the database is looked at, for all who ask")
    look_timeout_s: float = Field(5.0, gt=0, description="one look; past it the database counts as unreachable")


class TracingSettings(Section):
    """OpenTelemetry spans, sent by OTLP as the standard OTEL_... variables say."""

    enabled: bool = Field(False, description="needs the extra attribution-worker[otel]")


class EnvironmentWithFiles(EnvSettingsSource):
    """The environment, where `<NAME>_FILE` stands for the secret in that file."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        variables = dict(super()._load_env_vars())
        for name in [name for name in variables if _secret_in_file(name) is not None]:
            path, secret = variables.pop(name), name[: -len(FILE_SUFFIX)]
            if variables.get(secret) is not None:
                raise ConfigurationError(f"{secret.upper()} and {name.upper()} are both set")
            variables[secret] = path and _read_secret(name.upper(), Path(path))
        return variables


class Settings(BaseSettings):
    """The whole configuration, validated as one: single values here, relations between them below."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    kafka: KafkaSettings = KafkaSettings()
    postgres: PostgresSettings = PostgresSettings()
    intake: IntakeSettings = IntakeSettings()
    settle: SettleSettings = SettleSettings()
    judge: JudgeSettings = JudgeSettings()
    llm: LlmSettings = LlmSettings()
    limiter: LimiterSettings = LimiterSettings()
    budgets: BudgetSettings = BudgetSettings()
    reuse: ReuseSettings = ReuseSettings()
    credit: CreditSettings = CreditSettings()
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    outbox: OutboxSettings = OutboxSettings()
    shutdown: ShutdownSettings = ShutdownSettings()
    log: LogSettings = LogSettings()
    http: HttpSettings = HttpSettings()
    tracing: TracingSettings = TracingSettings()
    prices: Mapping[str, ModelPrices] = Field(
        {},
        description="in place of the known ones, by provider/model, in US dollars per million tokens, as JSON: "
        '{"openai/my-model": {"input": "0.25", "output": "2", "cache_read": "0.025", "cache_write": "0.25"}}',
    )
    store_text: TextStorage = Field(
        TextStorage.FULL,
        description="full, or hash: key points and quotes are kept as SHA-256 only; dead letters keep their bytes",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # replaced
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # a worker reads no file that it was not told of
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # the same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, EnvironmentWithFiles(settings_cls)

    @property
    def copies_judgements(self) -> bool:
        """A copy without words could not be shown to anybody who asks why: only where texts are stored in full."""
        return self.reuse.enabled and self.store_text is TextStorage.FULL

    def overridden(self, changes: Mapping[str, Mapping[str, object | None]]) -> "Settings":
        """A copy with these settings (section → name → value) replaced, validated as a whole; None leaves one as it is.

        Raises:
            ConfigurationError: a bad value, or values that contradict each other.
        """
        given: dict[str, object] = dict(self)
        for section, values in changes.items():
            current: Section = getattr(self, section)
            chosen = {name: value for name, value in values.items() if value is not None}
            given[section] = current.model_dump(exclude_unset=True) | chosen
        try:
            return Settings.model_validate(given)
        except ValidationError as error:
            raise ConfigurationError(_told(error)) from None

    @model_validator(mode="after")
    def relations_hold(self) -> Self:
        problems = [
            f"{left} ({a}) must be below {right} ({b}): {reason}"
            for left, a, right, b, reason in self._orderings()
            if not a < b
        ] + self.kafka.contradictions()
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _orderings(self) -> list[tuple[str, float, str, float, str]]:
        kafka, intake = self.kafka, self.intake
        return [
            (
                "kafka.rebalance_drain_ms + 2 * kafka.commit_timeout_ms",
                kafka.rebalance_drain_ms + 2 * kafka.commit_timeout_ms,
                "kafka.rebalance_timeout_ms",
                kafka.rebalance_timeout_ms,
                "a drain past it loses the partitions before their offsets are committed",
            ),
            (
                "kafka.poll_timeout_ms",
                kafka.poll_timeout_ms,
                "kafka.max_poll_interval_ms",
                kafka.max_poll_interval_ms,
                "a member that polls too rarely is thrown out of its group",
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
                "kafka.request_timeout_ms + kafka.rebalance_timeout_ms",
                kafka.request_timeout_ms + kafka.rebalance_timeout_ms,
                "1000 * http.silent_s_max",
                1000 * self.http.silent_s_max,
                "a worker that waits for its group is alive",
            ),
            (
                "intake.event_bytes_max",
                intake.event_bytes_max,
                "intake.bytes_max",
                intake.bytes_max,
                "one event must fit in flight",
            ),
        ]

    @field_validator("prices")
    @classmethod
    def prices_name_provider_and_model(cls, prices: Mapping[str, ModelPrices]) -> Mapping[str, ModelPrices]:
        for name in prices:
            provider, slash, model = name.partition("/")
            if not (provider and slash and model):
                raise ValueError(f"{name!r} is not provider/model")
        return prices


def load_settings() -> Settings:
    """Settings from the environment.

    Raises:
        ConfigurationError: an unknown name, a bad value, or values that contradict each other.
    """
    given = {name: value for name, value in os.environ.items() if name.upper().startswith(PREFIX)}
    unknown = sorted(name for name in given if _field_of(name) is None)
    if unknown:
        named = ", ".join(f"{name}{_resembling(name)}" for name in unknown)
        raise ConfigurationError(f"unknown setting: {named}. `attribution-worker config` lists them all")
    unreadable = [name for name, value in sorted(given.items()) if value and _is_table(name) and not _is_json(value)]
    if unreadable:
        raise ConfigurationError("\n".join(f"{name}: not JSON{_meaning(_field_of(name))}" for name in unreadable))
    try:
        return Settings()
    except ValidationError as error:
        raise ConfigurationError(_told(error)) from None


def _told(error: ValidationError) -> str:
    """Each problem on a line, by the variable that sets it and what that is for; never its value: it may be secret."""
    lines = []
    for problem in error.errors(include_input=False):
        path, text = problem["loc"], problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            text = "there is no such setting"
        name = variable_name(path)
        # A relation between settings names both itself.
        lines.append(f"{name}: {text}{_meaning(_field_of(name))}" if path else text)
    return "\n".join(lines)


def variable_name(path: Sequence[str | int]) -> str:
    """The environment variable that sets the setting at this path."""
    return PREFIX + "__".join(str(part).upper() for part in path)


def _meaning(field: FieldInfo | None) -> str:
    return f" ({field.description})" if field and field.description else ""


def _field_of(name: str) -> FieldInfo | None:
    """The setting that this variable sets; None if it sets none."""
    return _fields().get(name.upper()) or _secret_in_file(name)


def _secret_in_file(name: str) -> FieldInfo | None:
    """The secret setting that is in the file which this variable names; None if it names no such file."""
    field = _fields().get(name.upper().removesuffix(FILE_SUFFIX)) if name.upper().endswith(FILE_SUFFIX) else None
    return field if field is not None and is_secret(field) else None


def is_secret(field: FieldInfo) -> bool:
    """Whether its value must never be shown, and may come from a file."""
    return SecretStr in (field.annotation, *get_args(field.annotation))


def _read_secret(variable: str, path: Path) -> str:
    """The file's text without the line end that editors put behind it."""
    try:
        with path.open("rb") as file:
            content = file.read(SECRET_FILE_BYTES_MAX + 1)
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ConfigurationError(f"{variable}: the file cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{variable}: the file is not UTF-8") from None
    if not text or len(content) > SECRET_FILE_BYTES_MAX:
        raise ConfigurationError(f"{variable}: the file is empty, or larger than {SECRET_FILE_BYTES_MAX} bytes")
    return text


def _fields() -> Mapping[str, FieldInfo]:
    fields: dict[str, FieldInfo] = {}
    for name, field in Settings.model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            fields |= {variable_name([name, leaf]): leaf_field for leaf, leaf_field in model.model_fields.items()}
        else:
            fields[variable_name([name])] = field
    return fields


def _resembling(name: str) -> str:
    alike = get_close_matches(name.upper(), _fields(), n=1, cutoff=0.8)
    return f" (did you mean {alike[0]}?)" if alike else ""


def _is_table(name: str) -> bool:
    """Whether this variable holds a list or a table, written as JSON."""
    field = _field_of(name)
    return field is not None and get_origin(field.annotation) not in (None, Union, UnionType)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _flaw_of_dsn(dsn: str) -> str | None:
    """What makes this no address of a database, without a word of it: any part may be a piece of its password."""
    if not dsn.startswith(("postgresql://", "postgres://")):
        return "it must start with postgresql://"
    try:
        parts = urlsplit(dsn)
    except ValueError:
        return "the host is no valid address"
    misplaced = any("@" in part for part in (parts.path, parts.query, parts.fragment))
    ports = [host.rpartition("]")[2].partition(":")[2] for host in parts.netloc.rpartition("@")[2].split(",")]
    if misplaced or parts.fragment or not all(port == "" or _is_port(port) for port in ports):
        return "after user:password@ comes host:port; in a password write / as %2F, @ as %40, ? as %3F, # as %23"
    return None


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) <= PORT_MAX
