"""Column kinds and constraints that more than one table uses, so that each is said once."""

from collections.abc import Iterable
from enum import StrEnum

from sqlalchemy import (
    TIMESTAMP,
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    Text,
    text,
)

from worker.core.model import UNIT_SCALE

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

COST_USD = Numeric(20, 10)
UNIT_PRICE_USD = Numeric(18, 12)


def words(name: str, comment: str, *, null: bool = False, default: str | None = None) -> Column[str]:
    server_default = None if default is None else text(f"'{default}'")
    return Column(name, Text, nullable=null, server_default=server_default, comment=comment)


def moment(name: str, comment: str, *, null: bool = False, default: str | None = None) -> Column[object]:
    server_default = None if default is None else text(default)
    return Column(name, TIMESTAMP(timezone=True), nullable=null, server_default=server_default, comment=comment)


def count(name: str, comment: str) -> Column[int]:
    return Column(name, Integer, nullable=False, comment=comment)


def tokens(name: str, comment: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"), comment=comment)


def units(name: str, comment: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, comment=f"{comment}, in units of 10^-12 (0 .. 10^12)")


def sha256(name: str, comment: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False, comment=f"SHA-256, 32 bytes: {comment}")


def within_units(*names: str) -> CheckConstraint:
    return CheckConstraint(" AND ".join(f"{name} BETWEEN 0 AND {UNIT_SCALE}" for name in names), "units")


def not_negative(*names: str) -> CheckConstraint:
    return CheckConstraint(" AND ".join(f"{name} >= 0" for name in names), "counts")


def hash_lengths(*names: str) -> CheckConstraint:
    return CheckConstraint(" AND ".join(f"octet_length({name}) = 32" for name in names), "hashes")


def by_time(name: str, of: str) -> Index:
    """Tiny, for rows that come in the order of time; summarized while they come, not when a vacuum passes by."""
    return Index(name, text(of), postgresql_using="brin", postgresql_with={"autosummarize": "on"})


def by_day(name: str, moment: str) -> Index:
    """For views that ask by day: their condition on an expression prunes no partition."""
    return by_time(name, f"((({moment} AT TIME ZONE 'UTC')::date))")


def money(name: str) -> CheckConstraint:
    """PostgreSQL sorts NaN above every number, infinity too: a lower bound alone lets both through."""
    return CheckConstraint(f"{name} >= 0 AND {name} < 'Infinity'::numeric", name)


def one_of(name: str, members: Iterable[StrEnum]) -> CheckConstraint:
    listed = ", ".join(f"'{member.value}'" for member in members)
    return CheckConstraint(f"{name} IN ({listed})", name)
