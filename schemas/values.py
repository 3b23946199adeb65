"""Types of single values on the wire, the bounds they keep, and what to say when one is broken."""

import re
from datetime import datetime
from typing import Annotated, Final

from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

IDENTIFIER_CHARACTERS_MAX: Final = 256
"""Two identifiers of four-byte characters still fit a PostgreSQL index row (2,704 bytes)."""

CREDIT_UNITS_ONE: Final = 10**12
"""A credit, share, utility or residual of 1 in integer units of 10⁻¹²."""

SCHEMA_VERSION: Final = 1

LENIENT: Final = ConfigDict(frozen=True, strict=True, allow_inf_nan=False, extra="allow")
"""For what is read: values are strict, unknown fields are kept aside so that they can be counted."""

PUBLISHED: Final = ConfigDict(frozen=True, strict=True, allow_inf_nan=False, extra="ignore")
"""For what is written: a consumer that reads it with our model ignores fields of a later minor version."""

_CONTROL = r"\x00-\x1f\x7f-\x9f"
IDENTIFIER_PATTERN: Final = rf"^[^{_CONTROL}]*[^\s{_CONTROL}][^{_CONTROL}]*$"
# NUL does not count as text: the codec scrubs it, and what is left must not be blank.
NON_BLANK_PATTERN: Final = r"[^\s\x00]"
# Twelve integer digits in micro-units stay below 2⁶³.
AMOUNT_PATTERN: Final = r"^(0|[1-9][0-9]{0,11})(\.[0-9]{1,6})?$"
COST_PATTERN: Final = r"^(0|[1-9][0-9]*)(\.[0-9]+)?$"
CURRENCY_PATTERN: Final = r"^[A-Z]{3}$"
FRACTION_PATTERN: Final = r"^[01]\.[0-9]{12}$"
SHA256_PATTERN: Final = r"^[0-9a-f]{64}$"
TIMESTAMP_PATTERN: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
)

PATTERN_MEANINGS: Final = {
    IDENTIFIER_PATTERN: "must not be blank and must not hold control characters",
    NON_BLANK_PATTERN: "must not be blank",
    AMOUNT_PATTERN: "must be a decimal string of at most 12 integer digits and 6 decimals, not negative, like 12.50",
    CURRENCY_PATTERN: "must be three capital letters, like USD",
}
"""A pattern in words, for people who read a dead letter."""

_TIMESTAMP = re.compile(TIMESTAMP_PATTERN)


def _require_rfc3339(value: object) -> object:
    # Left to itself pydantic also reads strings of digits (seconds? milliseconds?) and dates with a blank for the T.
    if isinstance(value, datetime) or (isinstance(value, str) and _TIMESTAMP.match(value)):
        return value
    raise PydanticCustomError(
        "timestamp", "must be an RFC 3339 date-time string with a zone, like 2026-01-31T12:00:00Z"
    )


Identifier = Annotated[str, Field(min_length=1, max_length=IDENTIFIER_CHARACTERS_MAX, pattern=IDENTIFIER_PATTERN)]
# Lax behind the pattern: strict pydantic wants a datetime object once a validator has looked at the string.
Timestamp = Annotated[
    AwareDatetime,
    Field(strict=False),
    BeforeValidator(_require_rfc3339),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": TIMESTAMP_PATTERN}),
]
Units = Annotated[int, Field(ge=0, le=CREDIT_UNITS_ONE, description="in units of 10⁻¹²")]
Fraction = Annotated[str, Field(pattern=FRACTION_PATTERN, description="the units beside it as a decimal, for reading")]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Sha256Hex = Annotated[str, Field(pattern=SHA256_PATTERN)]


def fraction(units: int) -> Fraction:
    """Units of 10⁻¹² as a decimal with twelve places."""
    return f"{units // CREDIT_UNITS_ONE}.{units % CREDIT_UNITS_ONE:012d}"
