"""What every client of the broker has in common: its connection, and what its errors mean to the worker."""

import asyncio
import ssl
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Protocol

from aiokafka import errors

from worker.adapters.kafka.security import NOT_AUTHENTICATED, raise_refusal, security_options
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
)
_REFUSED = (
    errors.InvalidSessionTimeoutError,
    errors.InconsistentGroupProtocolError,
    errors.InvalidGroupIdError,
    errors.InvalidTopicError,
    errors.InvalidRequiredAcksError,
    errors.OffsetMetadataTooLargeError,
    errors.InvalidCommitOffsetSizeError,
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


_NOT_TRUSTED = frozenset(
    {
        "CERTIFICATE_VERIFY_FAILED",
        "WRONG_VERSION_NUMBER",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "TLSV1_ALERT_UNKNOWN_CA",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
    }
)
"""What OpenSSL calls the failures that stay; the others are connections that broke."""


class Client(Protocol):
    """Any of aiokafka's."""

    async def start(self) -> None: ...


def connection_options(settings: KafkaSettings) -> dict[str, object]:
    """Raises ConfigurationError where a file of the security settings cannot be used."""
    return {"bootstrap_servers": settings.bootstrap_servers, **_shared_options(settings)}


def _shared_options(settings: KafkaSettings) -> dict[str, object]:
    return {
        "client_id": settings.client_id,
        "request_timeout_ms": settings.request_timeout_ms,
        **security_options(settings),
    }


async def start_client(client: Client, settings: KafkaSettings) -> None:
    """Start it; where it only says that it could not connect, its error is the broker's reason, if that lasts."""
    try:
        await client.start()
    except errors.KafkaConnectionError:
        await raise_refusal(settings, _shared_options(settings))
        raise


@contextmanager
def translated_errors(doing: str) -> Iterator[None]:
    """What the broker says, in the worker's errors; `doing` names what was tried.

    Raises:
        FatalError: it will say so for ever, or going on would skip records.
        UnavailableError: anything else that it or the network says.
    """
    try:
        yield
    except NOT_AUTHENTICATED as error:
        advice = "check kafka.sasl_mechanism, kafka.sasl_username and kafka.sasl_password"
        raise FatalError(f"{doing}: the broker does not let us in: {_told(error)}; {advice}") from error
    except ssl.SSLError as error:
        if error.reason not in _NOT_TRUSTED:
            raise UnavailableError(f"{doing}: {_told(error)}") from error
        advice = "check kafka.security_protocol, kafka.ssl_ca_file and the broker's certificate"
        raise FatalError(f"{doing}: no TLS with the broker: {_told(error)}; {advice}") from error
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
