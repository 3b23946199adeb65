"""Identities of calls, in the order of time: an index over them grows at its end, on pages that are at hand."""

import secrets
from datetime import datetime
from uuid import UUID

VERSION = 7
VARIANT = 0b10
VERSION_RANDOM_BITS = 12
VARIANT_RANDOM_BITS = 62


def new_call_id(at: datetime) -> UUID:
    """A UUID of version 7 (RFC 9562): 48 bits of milliseconds since 1970, 74 of chance."""
    fields = (
        (int(at.timestamp() * 1_000), 48),
        (VERSION, 4),
        (secrets.randbits(VERSION_RANDOM_BITS), VERSION_RANDOM_BITS),
        (VARIANT, 2),
        (secrets.randbits(VARIANT_RANDOM_BITS), VARIANT_RANDOM_BITS),
    )
    value = 0
    for field, bits in fields:
        value = value << bits | field
    return UUID(int=value)
