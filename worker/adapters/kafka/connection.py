"""What every client of the broker has in common: its connection, and what its errors mean to the worker."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager

from aiokafka import errors

from worker.errors import FatalError, UnavailableError
from worker.settings import KafkaSettings
from worker.telemetry import log

CLOSE_TIMEOUT_S = 5.0
"""How long a client may take to say good-bye, once its broker does not answer."""

_NO_RIGHTS = (
    errors.TopicAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailed,
    errors.AuthenticationFailedError,
    errors.SaslAuthenticationFailed,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)
_REFUSED = (
    errors.InvalidSessionTimeoutError,
    errors.InconsistentGroupProtocolError,
    errors.InvalidGroupIdError,
    errors.InvalidTopicError,
    errors.InvalidRequiredAcksError,
    errors.UnsupportedVersionError,
    errors.IncompatibleBrokerVersion,
    errors.UnrecognizedBrokerVersion,
    errors.UnsupportedCodecError,
    errors.UnsupportedForMessageFormatError,
    errors.KafkaConfigurationError,
    errors.PolicyViolationError,
)
_UNREADABLE = (errors.OffsetOutOfRangeError, errors.RecordTooLargeError, errors.CorruptRecordException)
_UNWRITABLE = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError, errors.InvalidTimestampError)


def connection_options(settings: KafkaSettings) -> dict[str, object]:
    return {
        "bootstrap_servers": settings.bootstrap_servers,
        "client_id": settings.client_id,
        "request_timeout_ms": settings.request_timeout_ms,
    }


@contextmanager
def translated_errors(doing: str) -> Iterator[None]:
    """What the broker says, in the worker's errors; `doing` names what was tried.

    Raises:
        FatalError: it will say so for ever, or going on would skip records.
        UnavailableError: anything else that it or the network says.
    """
    try:
        yield
    except _NO_RIGHTS as error:
        raise FatalError(f"{doing}: no access: {_told(error)}; grant it to this worker's principal") from error
    except _UNREADABLE as error:
        raise FatalError(f"{doing}: going on would skip records: {_told(error)}") from error
    except (*_REFUSED, *_UNWRITABLE) as error:
        raise FatalError(f"{doing}: refused for good: {_told(error)}") from error
    except (errors.KafkaError, OSError, TimeoutError) as error:
        raise UnavailableError(f"{doing}: {_told(error)}") from error


async def close_in_time(closing: Awaitable[None], name: str) -> bool:
    """Whether the client closed; one whose broker is gone is left after `CLOSE_TIMEOUT_S`."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await closing
    except Exception as error:  # noqa: BLE001  # what a client says while it dies changes nothing for us
        log.warning("kafka.close_failed", client=name, problem=_told(error))
        return False
    return True


def _told(error: BaseException) -> str:
    name, said = type(error).__name__, str(error)
    # The client's own errors begin with their name.
    return said if said.startswith(name) else f"{name}: {said}" if said else name
