"""A small HTTP/1.1 server: one bounded request per connection, answered at once.

Requests are read by h11. A connection is a protocol and a timer, without a task: what it is asked is in memory, so that
no request ever waits, and none can hold anything for longer than its deadline.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import cast

import h11

from worker.errors import FatalError
from worker.http.answers import Page
from worker.settings import HttpSettings, variable_name
from worker.telemetry import log

HEAD_BYTES_MAX = 8_192
"""Of the request line and the headers."""

METHODS = frozenset({b"GET", b"HEAD"})

Answer = Callable[[str, str], Page]
"""The page for a path and an Accept header."""


class Connection(asyncio.Protocol):
    """One request, one response; then it is closed, at the latest at its deadline."""

    def __init__(self, answer: Answer, settings: HttpSettings, open_connections: "set[Connection]") -> None:
        self._answer = answer
        self._settings = settings
        self._open = open_connections
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are no subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        if len(self._open) >= self._settings.connections_max:
            self._transport.abort()
            return
        self._open.add(self)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._settings.request_timeout_s, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio names it
        if self in self._open:
            self._open.discard(self)
            self._deadline.cancel()

    def close(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.receive_data(data)
            event = self._parser.next_event()
        except h11.RemoteProtocolError as error:
            self._send(Page.of_status(HTTPStatus(error.error_status_hint)), "GET")
            return
        if isinstance(event, h11.Request):
            self._send(self._page(event), event.method.decode())

    def _page(self, request: h11.Request) -> Page:
        if request.method not in METHODS:
            return Page.of_status(HTTPStatus.METHOD_NOT_ALLOWED, {"allow": "GET, HEAD"})
        path = request.target.decode("ascii", "replace").partition("?")[0]
        accept = dict(request.headers).get(b"accept", b"").decode("latin-1")
        try:
            return self._answer(path, accept)
        except Exception as error:  # noqa: BLE001  # a bug in what is shown must not end the work that it shows
            log.error("http.failed", path=path, exc_info=error)
            return Page.of_status(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _send(self, page: Page, method: str) -> None:
        headers = {
            **page.headers,
            "content-type": page.content_type,
            "content-length": str(len(page.body)),
            "cache-control": "no-store",
            "connection": "close",
        }
        lines = [f"HTTP/1.1 {page.status.value} {page.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        self._transport.write(head if method == "HEAD" else head + page.body)
        self._transport.close()


@asynccontextmanager
async def serve_http(settings: HttpSettings, answer: Answer) -> AsyncIterator[int]:
    """Serves as long as the context; gives the port, a free one where the setting is 0.

    Raises:
        FatalError: the address cannot be had.
    """
    connections: set[Connection] = set()
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(
            lambda: Connection(answer, settings, connections), settings.host, settings.port
        )
    except OSError as error:
        variables = f"{variable_name(['http', 'host'])} and {variable_name(['http', 'port'])}"
        where = f"{settings.host} port {settings.port}"
        raise FatalError(f"HTTP cannot be served at {where} ({error.strerror}): set {variables}") from error
    port: int = server.sockets[0].getsockname()[1]
    log.info("http.served", host=settings.host, port=port)
    try:
        yield port
    finally:
        server.close()
        for connection in tuple(connections):
            connection.close()
        await server.wait_closed()
