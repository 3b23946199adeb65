"""Record headers as one byte string: order and duplicates kept, every name and value possible."""

from worker.core.records import Headers

LENGTH_BYTES = 4


def encode_headers(headers: Headers) -> bytes:
    """For each name and value its length as 4 bytes big-endian, then its bytes."""
    if not headers:
        return b""
    parts = [part for name, value in headers for part in (name.encode("utf-8", "surrogatepass"), value)]
    return b"".join(len(part).to_bytes(LENGTH_BYTES, "big") + part for part in parts)


def decode_headers(encoded: bytes) -> Headers:
    """The inverse of `encode_headers`.

    Raises:
        ValueError: the bytes were written by something else.
    """
    parts: list[bytes] = []
    at = 0
    while at < len(encoded):
        start = at + LENGTH_BYTES
        at = start + int.from_bytes(encoded[at:start], "big")
        if at > len(encoded):
            raise ValueError("headers end in the middle of a name or value")
        parts.append(encoded[start:at])
    names = [name.decode("utf-8", "surrogatepass") for name in parts[::2]]
    return tuple(zip(names, parts[1::2], strict=True))
