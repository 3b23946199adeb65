"""HTTP/1.1 by hand, so that a response can also be cut, dripped, reset or never sent.

Requests are read by h11. A connection is a protocol without tasks: thousands of slow responses are as many timers.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import cast

import h11

from worker.embedded.llm_emulator.effects import Delivery
from worker.embedded.llm_emulator.nouns import HttpRequest

BODY_BYTES_MAX = 32 * 1024 * 1024
SLOW_PIECES = 20
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER on and 0 s: closing sends a reset."""


@dataclass(frozen=True, slots=True)
class Response:
    """What is sent, how, and whom it concerns whether it arrived."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    delivery: Delivery = Delivery.WHOLE
    slow_s: float = 0.0
    on_delivery: Callable[[bool], None] = field(default=lambda _: None)


@dataclass(frozen=True, slots=True)
class Work:
    """A request taken on: after `lasts_s` (real seconds) `respond` gives the response, read or not.

    `is_call` tells calls of the APIs from questions about them.
    """

    lasts_s: float
    respond: Callable[[], Response]
    is_call: bool = True


Handle = Callable[[HttpRequest], Work]
Schedule = Callable[[Work, Callable[[], None]], None]
"""Calls back when the work is done."""


def rendered(response: Response, content_length: int) -> bytes:
    """The response with this many bytes announced."""
    try:
        reason = HTTPStatus(response.status).phrase
    except ValueError:
        reason = "Unknown"
    lines = [f"HTTP/1.1 {response.status} {reason}", f"content-length: {content_length}"]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    return "\r\n".join((*lines, "", "")).encode("utf-8") + response.body


class Connection(asyncio.Protocol):
    """One client connection: request after request, one at a time."""

    def __init__(self, handle: Handle, schedule: Schedule, connections: "set[Connection]") -> None:
        self._handle = handle
        self._schedule = schedule
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._is_lost = False
        self._parser = h11.Connection(h11.SERVER)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._unsent: Response | None = None
        self._unread: Response | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are no subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._connections.discard(self)
        # A client that closes with our bytes unread sends a reset: it had given up before they came.
        if self._unread is not None and exc is not None:
            self._unread.on_delivery(False)

    def resume_writing(self) -> None:
        """All that was written has left."""
        self._sent()

    def close(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._parser.receive_data(data)
        self._read()

    def _read(self) -> None:
        try:
            while True:
                event = self._parser.next_event()
                if isinstance(event, h11.Request):
                    self._head, self._unread = event, None
                    self._body.clear()
                elif isinstance(event, h11.Data):
                    self._body += event.data
                    if len(self._body) > BODY_BYTES_MAX:
                        self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                        return
                elif isinstance(event, h11.EndOfMessage):
                    self._work()
                else:
                    return
        except h11.RemoteProtocolError:
            self._refuse(HTTPStatus.BAD_REQUEST)

    def _refuse(self, status: HTTPStatus) -> None:
        self._transport.write(rendered(Response(status, {"connection": "close"}, b""), 0))
        self._transport.close()

    def _work(self) -> None:
        head = self._head
        if head is None:
            return
        request = HttpRequest(
            method=head.method.decode(),
            path=head.target.decode(),
            headers={name.decode(): value.decode("latin-1") for name, value in head.headers},
            body=bytes(self._body),
        )
        work = self._handle(request)
        self._schedule(work, partial(self._respond, work))

    def _respond(self, work: Work) -> None:
        response = work.respond()
        if self._is_lost:
            return
        whole = rendered(response, len(response.body))
        match response.delivery:
            case Delivery.WHOLE | Delivery.CLOSE_AFTER:
                self._write(whole, response)
            case Delivery.SLOW:
                self._drip(whole, response)
            case Delivery.TRUNCATED:
                self._transport.write(whole[: len(whole) - len(response.body) // 2 - 1])
                self._transport.close()
            case Delivery.RESET:
                self._reset()
            case Delivery.SILENCE:
                pass

    def _write(self, data: bytes, response: Response) -> None:
        """The last bytes of a response."""
        self._unsent = response
        self._transport.write(data)
        if not self._transport.get_write_buffer_size():
            self._sent()

    def _drip(self, data: bytes, response: Response, piece: int = 1) -> None:
        if self._is_lost:
            return
        size = -(-len(data) // (SLOW_PIECES - piece + 1))
        if piece == SLOW_PIECES:
            self._write(data, response)
            return
        self._transport.write(data[:size])
        self._loop.call_later(response.slow_s / SLOW_PIECES, self._drip, data[size:], response, piece + 1)

    def _sent(self) -> None:
        response, self._unsent = self._unsent, None
        if response is None:
            return
        self._unread = response
        response.on_delivery(True)
        if response.delivery is Delivery.CLOSE_AFTER:
            self._transport.close()
            return
        self._next_request()

    def _next_request(self) -> None:
        """A fresh parser each time: h11 is told of requests only, not of what we answer."""
        pending, is_closed = self._parser.trailing_data
        self._parser = h11.Connection(h11.SERVER)
        if pending:
            self._parser.receive_data(pending)
        if is_closed:
            self._transport.close()
            return
        self._read()

    def _reset(self) -> None:
        handle = self._transport.get_extra_info("socket")
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self._transport.abort()


class HttpServer:
    """Accepts connections on 127.0.0.1 until it is closed."""

    def __init__(self, handle: Handle, schedule: Schedule) -> None:
        self.accepted = 0
        self._handle = handle
        self._schedule = schedule
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self, host: str, port: int, backlog: int) -> int:
        """Listens, and returns the port: a free one when `port` is 0."""
        self._server = await asyncio.get_running_loop().create_server(self._accept, host, port, backlog=backlog)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def _accept(self) -> Connection:
        self.accepted += 1
        return Connection(self._handle, self._schedule, self._connections)

    async def close(self) -> None:
        """Ends every connection at once, whatever it waits for."""
        if self._server is not None:
            self._server.close()
            for connection in tuple(self._connections):
                connection.close()
            await self._server.wait_closed()
