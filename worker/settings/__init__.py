"""Every setting, its unit and its default: the only reader of the environment.

`ATTRIBUTION_<SECTION>__<NAME>`, for example `ATTRIBUTION_KAFKA__BOOTSTRAP_SERVERS`. A secret may be in a file instead,
which the same name with `_FILE` behind it names. An unknown name and settings that contradict each other are refused at
start.
"""

from worker.settings.configuration import (
    FILE_SUFFIX,
    SECRET_FILE_BYTES_MAX,
    EnvironmentWithFiles,
    Settings,
    is_secret,
    load_settings,
    variable_name,
)
from worker.settings.judging import (
    BudgetSettings,
    JudgeName,
    JudgeSettings,
    LimiterSettings,
    LlmSettings,
    ModelLimits,
    ModelPrices,
    Money,
    ReuseSettings,
    UnitPrice,
)
from worker.settings.kafka import KafkaSettings, SaslMechanism, SecurityProtocol
from worker.settings.line import CreditSettings, IntakeSettings, SettleSettings, ShutdownSettings
from worker.settings.operating import HttpSettings, LogFormat, LogSettings, TracingSettings
from worker.settings.section import PORT_MAX, PREFIX, ConfigurationError, Section
from worker.settings.storage import DeadLetterSettings, OutboxSettings, PostgresSettings, TextStorage

__all__ = [
    "FILE_SUFFIX",
    "PORT_MAX",
    "PREFIX",
    "SECRET_FILE_BYTES_MAX",
    "BudgetSettings",
    "ConfigurationError",
    "CreditSettings",
    "DeadLetterSettings",
    "EnvironmentWithFiles",
    "HttpSettings",
    "IntakeSettings",
    "JudgeName",
    "JudgeSettings",
    "KafkaSettings",
    "LimiterSettings",
    "LlmSettings",
    "LogFormat",
    "LogSettings",
    "ModelLimits",
    "ModelPrices",
    "Money",
    "OutboxSettings",
    "PostgresSettings",
    "ReuseSettings",
    "SaslMechanism",
    "Section",
    "SecurityProtocol",
    "Settings",
    "SettleSettings",
    "ShutdownSettings",
    "TextStorage",
    "TracingSettings",
    "UnitPrice",
    "is_secret",
    "load_settings",
    "variable_name",
]
