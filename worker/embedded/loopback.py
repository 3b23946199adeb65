"""Ports of 127.0.0.1: finding free ones, and asking whether a Kafka broker answers there."""

import random
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack

HOST = "127.0.0.1"
PORTS = range(10_240, 32_768)
"""Below those that outgoing connections get (Linux from 32768, macOS 49152): a stopped server finds its own again."""
PORT_TRIES = 200
API_VERSIONS_KEY = 18
CORRELATION_ID = 7
PROBE_TIMEOUT_S = 0.5


def free_port() -> int:
    """A port nobody listens on now; it can be taken before it is used, so be ready to try again."""
    dice = random.SystemRandom()
    for _ in range(PORT_TRIES):
        port = dice.choice(PORTS)
        if is_free(port):
            return port
    raise OSError(f"no free port found on {HOST} in {PORT_TRIES} tries")


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # What servers do themselves: connections of the past in TIME_WAIT are no obstacle, a listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _received(connection: socket.socket, count: int) -> Iterator[bytes]:
    """So many bytes, unless the connection ends before."""
    while count and (part := connection.recv(count)):
        count -= len(part)
        yield part


def answers_kafka(port: int, context: ssl.SSLContext | None = None) -> bool:
    """Whether a broker answers an ApiVersions request (version 0, of every broker there is), over TLS if given one."""
    request = struct.pack(">hhih", API_VERSIONS_KEY, 0, CORRELATION_ID, -1)
    try:
        with ExitStack() as closing:
            connection = closing.enter_context(socket.create_connection((HOST, port), PROBE_TIMEOUT_S))
            if context is not None:
                connection = closing.enter_context(context.wrap_socket(connection, server_hostname=HOST))
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = b"".join(_received(connection, 8))
    except OSError:
        return False
    return len(answer) == 8 and struct.unpack(">ii", answer)[1] == CORRELATION_ID
