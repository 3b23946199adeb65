"""A producer that writes header names as the bytes it is given, like those of some other languages.

`AIOKAFKA_NO_EXTENSIONS=1 python -m tests.integration.kafka.bytes_producer BOOTSTRAP TOPIC` takes a JSON list of records
on stdin: partition, value, and the header's name in hexadecimal. It needs a process of its own: only aiokafka's
producer in Python can be talked into it.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer

from worker.embedded.broker import Broker


class BytesName(str):
    """A name of one character a byte, which encodes to just these bytes and not to UTF-8."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return super().encode("latin-1")


async def produce_from_stdin(bootstrap_servers: str, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, compression_type="gzip", linger_ms=50)
    await producer.start()
    try:
        for partition, value, name in json.loads(sys.stdin.buffer.read()):
            headers = [(BytesName(bytes.fromhex(name).decode("latin-1")), b"1")] if name else []
            await producer.send(topic, value.encode(), key=b"k", partition=partition, headers=headers)
        await producer.flush()
    finally:
        await producer.stop()


def produce_bytes(broker: Broker, topic: str, records: Sequence[tuple[int, str, bytes]]) -> None:
    """One record per partition, value and name of its one header; without a header where the name is empty."""
    told = json.dumps([(partition, value, name.hex()) for partition, value, name in records])
    subprocess.run(  # noqa: S603  # this module
        [sys.executable, "-m", __spec__.name, broker.bootstrap_servers, topic],
        env={**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"},  # noqa: TID251  # handed on, not read
        input=told.encode(),
        check=True,
        timeout=60,
    )


if __name__ == "__main__":
    asyncio.run(produce_from_stdin(*sys.argv[1:]))
