"""Which contexts come more than once, and so are worth writing to a provider's cache."""

import hashlib
from collections import OrderedDict

REMEMBERED_MAX = 10_000


class SharedContexts:
    """Remembers the latest contexts by their hash.

    Anthropic charges 1.25 times the price to write and 0.1 times to read: a context that is sent once must not be
    written, one that is sent a third time has paid for it.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def came_before(self, context: str) -> bool:
        key = hashlib.blake2b(context.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        came_before = key in self._seen
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > REMEMBERED_MAX:
            self._seen.popitem(last=False)
        return came_before
