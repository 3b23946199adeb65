"""Who we are to the broker, and whom we take it for: TLS and SASL, as aiokafka wants them."""

import asyncio
import ssl
from pathlib import Path

from aiokafka import errors
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import AIOKafkaConnection, collect_hosts
from aiokafka.helpers import create_ssl_context

from worker.settings import ConfigurationError, KafkaSettings

NOT_AUTHENTICATED = (
    errors.AuthenticationFailedError,
    errors.SaslAuthenticationFailed,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)
"""What a broker says to whoever it does not take for a principal."""

GOODBYE_S = 0.5
"""How long TLS may take to end a connection; one that never began has no end to wait for."""


class FileToken(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka ships no types
    """The token in a file, read at every log-in: what writes the file keeps it fresh."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def token(self) -> str:
        return self._file.read_text().strip()


def security_options(settings: KafkaSettings) -> dict[str, object]:
    """What the settings say; every client takes it.

    Raises:
        ConfigurationError: a file cannot be used.
    """
    protocol, mechanism = settings.security_protocol, settings.sasl_mechanism
    options: dict[str, object] = {"security_protocol": protocol.value}
    if protocol.is_encrypted:
        options["ssl_context"] = _ssl_context(settings)
    if mechanism is not None:
        options["sasl_mechanism"] = mechanism.value
    if settings.sasl_password is not None:
        options["sasl_plain_username"] = settings.sasl_username
        options["sasl_plain_password"] = settings.sasl_password.get_secret_value()
    if settings.sasl_token_file is not None:
        _require_readable(settings.sasl_token_file, "sasl_token_file")
        options["sasl_oauth_token_provider"] = FileToken(settings.sasl_token_file)
    return options


def _ssl_context(settings: KafkaSettings) -> ssl.SSLContext:
    for name in ("ssl_ca_file", "ssl_cert_file", "ssl_key_file"):
        file: Path | None = getattr(settings, name)
        if file is not None:
            _require_readable(file, name)
    try:
        context: ssl.SSLContext = create_ssl_context(
            cafile=settings.ssl_ca_file,
            certfile=settings.ssl_cert_file,
            keyfile=settings.ssl_key_file,
            # An encrypted key is refused, where OpenSSL would ask for its password on the terminal.
            password="",
        )
    except (ssl.SSLError, OSError) as error:
        files = "kafka.ssl_ca_file, kafka.ssl_cert_file or kafka.ssl_key_file"
        raise ConfigurationError(f"{files} holds no PEM that can be used: {error}") from error
    return context


def _require_readable(file: Path, name: str) -> None:
    try:
        file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"kafka.{name} cannot be read: {error.strerror}") from error


async def raise_refusal(settings: KafkaSettings, options: dict[str, object]) -> None:
    """Why no client could connect, where the reason is who we are or whom we trust.

    aiokafka tells that to its log alone, and its caller only that it is "unable to bootstrap". So one connection more
    is made, whose error nobody swallows.

    Raises:
        KafkaError, ssl.SSLError: a broker refuses us, or we refuse it.
    """
    for host, port, _ in collect_hosts(settings.bootstrap_servers, randomize=False):
        connection = AIOKafkaConnection(host, port, **options)
        try:
            await connection.connect()
        except (*NOT_AUTHENTICATED, ssl.SSLError):
            raise
        except (errors.KafkaError, OSError, TimeoutError):
            continue
        else:
            return
        finally:
            await asyncio.wait([connection.close()], timeout=GOODBYE_S)
