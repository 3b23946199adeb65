"""The system of record: PostgreSQL, dead letters, the outbox, and which texts are kept."""

from enum import StrEnum
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from worker.settings.section import PORT_MAX, Section


class TextStorage(StrEnum):
    FULL = "full"
    HASH = "hash"


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
    responses_age_days_max: int = Field(
        92, ge=1, description="older LLM responses are not looked for: an answer replayed after that is judged anew"
    )
    retention_months: int | None = Field(
        None, ge=1, description="older monthly partitions are dropped; unset keeps all"
    )
    answers_retention_months: int | None = Field(
        None, ge=1, description="older answers are forgotten: one that comes again is paid again; unset keeps all"
    )

    @field_validator("dsn")
    @classmethod
    def dsn_is_an_address(cls, dsn: SecretStr) -> SecretStr:
        flaw = _flaw_of_dsn(dsn.get_secret_value())
        if flaw is not None:
            raise ValueError(flaw)
        return dsn


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
    publish_timeout_s: float = Field(
        40.0, gt=0, description="one batch's acknowledgement; above kafka.request_timeout_ms, whose error says more"
    )


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
