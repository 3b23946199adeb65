"""How often a record was replayed from the dead letters: one header that travels with the original ones."""

from schemas.dead_letter import REPLAY_HEADER, REPLAYS_MAX
from worker.core.records import Headers


def replays_of(headers: Headers) -> int:
    """0 for a record as its producer sent it, and for a header that no replay of ours wrote."""
    told = [value for name, value in headers if name == REPLAY_HEADER]
    text = (told[-1] if told else None) or b""
    count = int(text) if text.isdigit() and len(text) <= len(str(REPLAYS_MAX)) else 0
    return count if count <= REPLAYS_MAX else 0


def replayed_headers(headers: Headers) -> Headers:
    """The record's own headers, and behind them the count of replays with this one."""
    own = tuple(header for header in headers if header[0] != REPLAY_HEADER)
    return (*own, (REPLAY_HEADER, str(replays_of(headers) + 1).encode()))
