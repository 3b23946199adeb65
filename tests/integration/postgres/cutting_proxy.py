"""A TCP proxy before PostgreSQL that cuts one connection at the worst moment: around a COMMIT."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class CuttingProxy:
    """Cuts the first connection on which `cut_at` is sent: with `forward`, only once the server has answered it."""

    def __init__(self, dsn: str, *, cut_at: bytes, forward: bool) -> None:
        self._target = urlsplit(dsn)
        self._cut_at = cut_at
        self._forward = forward
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
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        cut = asyncio.Event()

        def at_request(data: bytes) -> bool:
            if self._cut_at not in data or self.cuts:
                return True
            self.cuts += 1
            cut.set()
            return self._forward

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_pump(reader, server_writer, at_request))
            tasks.create_task(_pump(server_reader, writer, lambda _: not cut.is_set()))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[bytes], bool]) -> None:
    """Bytes from one side to the other until an end, or until some may not pass; then both sides end."""
    try:
        while (data := await reader.read(65_536)) and passes(data):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
