"""One HTTP request over a socket, by hand: no client library between a test and the wire."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):  # cut off by the other side
            await writer.wait_closed()


async def request(port: int, path: str, *, method: str = "GET", accept: str = "") -> Response:
    async with connected(port) as (reader, writer):
        writer.write(f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: {accept}\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return Response(int(first.split()[1]), headers, body)
