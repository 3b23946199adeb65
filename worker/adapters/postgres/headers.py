"""Record headers as one byte string: order and duplicates kept, every name and value possible."""

from worker.core.records import Headers

LENGTH_BYTES = 4
NO_VALUE = b"\xff" * LENGTH_BYTES
"""In place of a length: Kafka tells a header without a value from one with an empty value."""


def encode_headers(headers: Headers) -> bytes:
    """For each name and value its length as 4 bytes big-endian, then its bytes; -1 and nothing for no value."""
    return b"".join(
        _measured(part) for name, value in headers for part in (name.encode("utf-8", "surrogatepass"), value)
    )


def decode_headers(encoded: bytes) -> Headers:
    """The inverse of `encode_headers`.

    Raises:
        ValueError: the bytes were written by something else.
    """
    parts: list[bytes | None] = []
    at = 0
    while at < len(encoded):
        start = at + LENGTH_BYTES
        length = encoded[at:start]
        at = start if length == NO_VALUE else start + int.from_bytes(length, "big")
        if at > len(encoded):
            raise ValueError("headers end in the middle of a name or value")
        parts.append(None if length == NO_VALUE else encoded[start:at])
    names = [(name or b"").decode("utf-8", "surrogatepass") for name in parts[::2]]
    return tuple(zip(names, parts[1::2], strict=True))


def _measured(part: bytes | None) -> bytes:
    return NO_VALUE if part is None else len(part).to_bytes(LENGTH_BYTES, "big") + part
