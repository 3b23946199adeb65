"""A TCP proxy before PostgreSQL that cuts, or holds, one connection at the worst moment: around a COMMIT."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class CuttingProxy:
    """Cuts the first connection on which `cut_at` is sent: with `forward`, only once the server has answered it.

    Args:
        dsn: the server.
        cut_at: what is sent when it is to be cut.
        forward: whether it still reaches the server, whose answer then does not come back.
        after: only a connection on which this was sent before; statements are sent in words once a connection.
        holds: instead of cutting, let nothing through from then on, until `release`; to the client the server is
            silent, and to the server the client.
    """

    def __init__(self, dsn: str, *, cut_at: bytes, forward: bool, after: bytes = b"", holds: bool = False) -> None:
        self._target = urlsplit(dsn)
        self._cut_at = cut_at
        self._forward = forward
        self._after = after
        self._holds = holds
        self._connections: set[asyncio.Task[None]] = set()
        self._released = asyncio.Event()
        self._closing = False
        self.met = asyncio.Event()
        """Set when the request has come; with `forward`, when the server has answered it."""
        self.cuts = 0

    @property
    def dsn(self) -> str:
        credentials, _, _ = self._target.netloc.rpartition("@")
        return urlunsplit(self._target._replace(netloc=f"{credentials}@127.0.0.1:{self._port}"))

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._server.close()
        self._closing = True
        self._released.set()
        if self._connections:
            await asyncio.wait(self._connections)
        await self._server.wait_closed()

    def release(self) -> None:
        """What was held goes its way, late."""
        self._released.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        server_reader, server_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        watched = Watched(self._after)

        async def request_passes(data: bytes) -> bool:
            if self.cuts or not watched.reaches(self._cut_at, data):
                return True
            self.cuts += 1
            watched.is_cut = True
            if self._forward:
                return True
            self.met.set()
            return await self._let_go()

        async def response_passes(_: bytes) -> bool:
            if not watched.is_cut:
                return True
            self.met.set()
            return await self._let_go()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_pump(reader, server_writer, request_passes))
            tasks.create_task(_pump(server_reader, writer, response_passes))

    async def _let_go(self) -> bool:
        """Whether what was met goes on in the end."""
        if self._holds:
            await self._released.wait()
            return not self._closing
        return False


class Watched:
    """What was sent on one connection."""

    def __init__(self, after: bytes) -> None:
        self._after = after
        self.is_cut = False

    def reaches(self, cut_at: bytes, data: bytes) -> bool:
        if self._after and self._after in data:
            self._after = b""
        return not self._after and cut_at in data


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[bytes], Awaitable[bool]]
) -> None:
    """Bytes from one side to the other until an end, or until some may not pass; then both sides end."""
    try:
        while (data := await reader.read(65_536)) and await passes(data):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
