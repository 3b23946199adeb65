"""Every setting, its unit and its default: the only reader of the environment.

`ATTRIBUTION_<SECTION>__<NAME>`, for example `ATTRIBUTION_KAFKA__BOOTSTRAP_SERVERS`. A secret may be in a file instead,
which the same name with `_FILE` behind it names. An unknown name and settings that contradict each other are refused at
start.
"""

import json
import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Self, Union, get_args, get_origin

from pydantic import BaseModel, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from worker.settings.judging import (
    BudgetSettings,
    JudgeSettings,
    LimiterSettings,
    LlmSettings,
    ModelPrices,
    ReuseSettings,
)
from worker.settings.kafka import KafkaSettings
from worker.settings.line import CreditSettings, IntakeSettings, SettleSettings, ShutdownSettings
from worker.settings.operating import HttpSettings, LogSettings, TracingSettings
from worker.settings.section import PREFIX, ConfigurationError, Section
from worker.settings.storage import DeadLetterSettings, OutboxSettings, PostgresSettings, TextStorage

FILE_SUFFIX = "_FILE"
SECRET_FILE_BYTES_MAX = 65_536
SHORTEST_MONTH_MS = 28 * 86_400_000


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
        ] + [*self.kafka.contradictions(), *self._answers_forgotten_too_early()]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _answers_forgotten_too_early(self) -> list[str]:
        """Whatever may come again, or hangs on it, must find its answer."""
        kept_months, attributions_months = self.postgres.answers_retention_months, self.postgres.retention_months
        if kept_months is None:
            return []
        name, problems = f"postgres.answers_retention_months ({kept_months})", []
        if attributions_months is None or attributions_months > kept_months:
            problems.append(f"{name} must not be below postgres.retention_months: attributions need their answer")
        topic_ms = self.kafka.answers_retention_ms
        if topic_ms < 0 or topic_ms >= kept_months * SHORTEST_MONTH_MS:
            problems.append(f"{name} must outlast kafka.answers_retention_ms: an answer read again would be paid again")
        return problems

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
