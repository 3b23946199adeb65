"""Connections in small pools: one large pool looks at each of its connections for every request."""

import math
import ssl
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

import httpx2

POOL_CONNECTIONS_MAX = 32
"""With 300 connections in one pool, half of a call's CPU is spent on choosing among them."""

KEEPALIVE_EXPIRY_S = 15.0
"""Short: providers drop idle connections, and a reset on a reused one looks like a lost call (claude-code#82500)."""

BODY_BYTES_MAX = 16 * 1024 * 1024
"""Several times what the longest output of any model takes."""


class PooledTransport(httpx2.AsyncBaseTransport):
    """At most `connections_max` connections; a request takes the first pool with room, so that few stay warm.

    A body longer than `BODY_BYTES_MAX` is given up, as one that breaks off. Nothing is taken from the environment.
    """

    def __init__(self, connections_max: int) -> None:
        count = math.ceil(connections_max / POOL_CONNECTIONS_MAX)
        # Made once: it reads every root certificate there is.
        tls = httpx2.create_ssl_context(trust_env=False)
        # Sizes differ by one at most.
        self._pools = [_Pool((connections_max + index) // count, tls) for index in range(count)]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        pool = next((pool for pool in self._pools if pool.in_use < pool.size), self._pools[0])
        return await pool.handle(request)

    async def __aenter__(self) -> Self:
        for pool in self._pools:
            await pool.transport.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        for pool in self._pools:
            await pool.transport.__aexit__(exc_type, exc_value, traceback)

    async def aclose(self) -> None:
        for pool in self._pools:
            await pool.transport.aclose()


class _Pool:
    def __init__(self, size: int, tls: ssl.SSLContext) -> None:
        self.size = size
        self.in_use = 0
        limits = httpx2.Limits(
            max_connections=size, max_keepalive_connections=size, keepalive_expiry=KEEPALIVE_EXPIRY_S
        )
        self.transport = httpx2.AsyncHTTPTransport(verify=tls, limits=limits, trust_env=False)

    async def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.in_use += 1
        try:
            response = await self.transport.handle_async_request(request)
        except BaseException:
            self.in_use -= 1
            raise
        response.stream = _Body(response.stream, request, self)
        return response


class _Body(httpx2.AsyncByteStream):
    """The bytes of a response; its connection is in use until it is closed."""

    def __init__(self, stream: object, request: httpx2.Request, pool: _Pool) -> None:
        assert isinstance(stream, httpx2.AsyncByteStream)  # noqa: S101  # what an async transport gives
        self._stream = stream
        self._request = request
        self._pool: _Pool | None = pool

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read_bytes = 0
        async for chunk in self._stream:
            read_bytes += len(chunk)
            if read_bytes > BODY_BYTES_MAX:
                raise httpx2.ReadError(f"the body is longer than {BODY_BYTES_MAX} bytes", request=self._request)
            yield chunk

    async def aclose(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.in_use -= 1
        await self._stream.aclose()
