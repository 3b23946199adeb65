"""The one HTTP client of a provider: bounded in connections, in time by phase, and in what it reads."""

import logging
from collections.abc import AsyncIterator

import httpx2

CONNECT_S_MAX = 10.0
POOL_S_MAX = 10.0
KEEPALIVE_EXPIRY_S = 15.0
"""Short: providers drop idle connections, and a reset on a reused one looks like a lost call (claude-code#82500)."""

BODY_BYTES_MAX = 16 * 1024 * 1024
"""Several times what the longest output of any model takes."""

LIBRARY_LOGGERS = ("openai", "anthropic", "httpx2", "httpcore2")


def http_client(*, connections_max: int) -> httpx2.AsyncClient:
    """The limiter, not the pool, decides how many calls are in flight: `connections_max` must not be less.

    Nothing is taken from the environment: no proxy, no netrc, no certificates.
    """
    limits = httpx2.Limits(
        max_connections=connections_max,
        max_keepalive_connections=connections_max,
        keepalive_expiry=KEEPALIVE_EXPIRY_S,
    )
    transport = BoundedTransport(limits=limits, trust_env=False)
    return httpx2.AsyncClient(transport=transport, trust_env=False, follow_redirects=False)


def timeouts(total_s: float) -> httpx2.Timeout:
    """Bounds per phase. The total is not httpx's to keep: a body may drip for ever without one read taking long.

    Getting a connection has half of the total at most, so that it is over, and known to have sent nothing, in time.
    """
    return httpx2.Timeout(total_s, connect=min(CONNECT_S_MAX, total_s / 2), pool=min(POOL_S_MAX, total_s / 2))


def silence_libraries() -> None:
    """At their lower levels they log requests, and with them what publishers wrote."""
    for name in LIBRARY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)


class BoundedTransport(httpx2.AsyncHTTPTransport):
    """Gives up on a body longer than `BODY_BYTES_MAX`, as on one that breaks off."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _BoundedStream(response.stream, request)
        return response


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, request: httpx2.Request) -> None:
        self._stream = stream
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read_bytes = 0
        async for chunk in self._stream:
            read_bytes += len(chunk)
            if read_bytes > BODY_BYTES_MAX:
                raise httpx2.ReadError(f"the body is longer than {BODY_BYTES_MAX} bytes", request=self._request)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
