"""What a PostgreSQL error means for the worker: SQLSTATEs sorted by what to do next."""

import ssl
from enum import Enum, auto
from typing import assert_never

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from worker.errors import FatalError, RetryableError, UnavailableError, WorkerError


class Failure(Enum):
    """What to do about an error."""

    TRANSIENT = auto()
    """The same work, done again now, may well succeed."""
    DOWN = auto()
    """The database cannot be reached, or cannot work now."""
    DATA = auto()
    """One of the values cannot be stored; the work of others can."""
    SETUP = auto()
    """Rights, tables or the database itself are missing."""
    BUG = auto()
    """Ours."""


class TlsRefusedError(ConnectionError):
    """The server speaks no TLS, and we were told to take nothing else."""


READ_ONLY = "25006"
CHECK_VIOLATION = "23514"
SQLSTATES = {
    "40001": Failure.TRANSIENT,  # serialization failure
    "40P01": Failure.TRANSIENT,  # deadlock detected
    "55P03": Failure.TRANSIENT,  # lock timeout
    "57014": Failure.TRANSIENT,  # statement timeout
    "26000": Failure.TRANSIENT,  # prepared statement gone, behind a pooler
    READ_ONLY: Failure.TRANSIENT,  # a former primary after a failover: another connection may reach the new one
    "42501": Failure.SETUP,  # no right
    "42P01": Failure.SETUP,  # no table
    "42703": Failure.SETUP,  # no column
    "42883": Failure.SETUP,  # no function
    "3D000": Failure.SETUP,  # no database
    "3F000": Failure.SETUP,  # no schema
}
SQLSTATE_CLASSES = {
    "08": Failure.TRANSIENT,  # the connection broke; whether a commit took effect is unknown
    "57": Failure.TRANSIENT,  # operator intervention: the backend was terminated, the server restarts
    "53": Failure.DOWN,  # too many connections, disk or memory full
    "58": Failure.DOWN,  # system error
    "22": Failure.DATA,  # a value out of range or not encodable
    "23": Failure.DATA,  # a constraint
    "54": Failure.DATA,  # a limit of the server, such as the size of an index row
    "28": Failure.SETUP,  # not authenticated
}
DRIVER_ERRORS = {
    asyncpg.InvalidCachedStatementError: Failure.TRANSIENT,  # planned before a migration
    asyncpg.TargetServerAttributeNotMatched: Failure.DOWN,  # no primary among the hosts just now
    asyncpg.ClientConfigurationError: Failure.SETUP,
    ssl.SSLCertVerificationError: Failure.SETUP,
    TlsRefusedError: Failure.SETUP,
    asyncpg.InternalClientError: Failure.TRANSIENT,  # the server ended the session, and its end is still being read
}


def classify(error: BaseException) -> Failure:
    if isinstance(error, PoolTimeoutError):
        return Failure.DOWN
    cause = _cause(error)
    sqlstate = getattr(cause, "sqlstate", None)
    if sqlstate == CHECK_VIOLATION and not getattr(cause, "constraint_name", None):
        # The row met a partition that was just attached or made; the next try is routed to the right one.
        return Failure.TRANSIENT
    for kind, failure in DRIVER_ERRORS.items():
        if isinstance(cause, kind):
            return failure
    if sqlstate is not None:
        return SQLSTATES.get(sqlstate) or SQLSTATE_CLASSES.get(sqlstate[:2], Failure.BUG)
    return _classify_by_words(cause)


def _classify_by_words(cause: BaseException) -> Failure:
    """What the driver says in its own name."""
    if isinstance(cause, asyncpg.InterfaceError):
        # Of a connection that broke before the statement, and of misuse.
        return Failure.TRANSIENT if "closed" in str(cause) else Failure.BUG
    if isinstance(cause, OSError):
        return Failure.DOWN
    return Failure.BUG


def translated(error: Exception) -> Exception:
    """The worker's error for this one; a bug stays what it is."""
    if isinstance(error, WorkerError):
        return error
    what = describe(error)
    match classify(error):
        case Failure.TRANSIENT | Failure.DOWN:
            return UnavailableError(f"PostgreSQL: {what}")
        case Failure.DATA:
            return RetryableError(f"PostgreSQL refused a value: {what}")
        case Failure.SETUP:
            advice = "check postgres.dsn and the role's rights, and run `attribution-worker migrate`"
            return FatalError(f"PostgreSQL refused: {what}; {advice}")
        case Failure.BUG:
            return error
        case unreachable:
            assert_never(unreachable)


def describe(error: Exception) -> str:
    """Kind, SQLSTATE and the names in an error; its message only where it cannot quote a stored value."""
    cause = _cause(error)
    sqlstate = getattr(cause, "sqlstate", None)
    if sqlstate is None:
        return f"{type(cause).__name__}: {cause}"
    names = [getattr(cause, name, None) for name in ("table_name", "column_name", "constraint_name")]
    where = ", ".join(name for name in names if name)
    said = "" if SQLSTATE_CLASSES.get(sqlstate[:2]) is Failure.DATA else f": {cause.args[0]}" if cause.args else ""
    return f"{type(cause).__name__} ({sqlstate}{f', {where}' if where else ''}){said}"


def sqlstate_of(error: BaseException) -> str:
    """The server's five characters, or `none` where the connection broke without a word."""
    return getattr(_cause(error), "sqlstate", None) or "none"


def connections_are_stale(error: BaseException) -> bool:
    """Idle connections lead where this one did, and seem alive: to a former primary, or to a server just gone."""
    cause = _cause(error)
    return getattr(cause, "sqlstate", None) == READ_ONLY or isinstance(cause, asyncpg.InternalClientError)


def _cause(error: BaseException) -> BaseException:
    """The driver's error inside SQLAlchemy's wrappers."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return error.orig.__cause__ or error.orig
    return error
