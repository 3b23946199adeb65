"""The one HTTP client of a provider: bounded in connections, in time by phase, and silent."""

import logging

import httpx2

from worker.adapters.llm.transport import PooledTransport

CONNECT_S_MAX = 10.0
POOL_S_MAX = 10.0

LIBRARY_LOGGERS = ("openai", "anthropic", "httpx2", "httpcore2")


def http_client(*, connections_max: int) -> httpx2.AsyncClient:
    """The limiter, not the client, decides how many calls are in flight: `connections_max` must not be less."""
    return httpx2.AsyncClient(transport=PooledTransport(connections_max), trust_env=False, follow_redirects=False)


def timeouts(total_s: float) -> httpx2.Timeout:
    """Bounds per phase. The total is not httpx's to keep: a body may drip for ever without one read taking long.

    Getting a connection has half of the total at most, so that it is over, and known to have sent nothing, in time.
    """
    return httpx2.Timeout(total_s, connect=min(CONNECT_S_MAX, total_s / 2), pool=min(POOL_S_MAX, total_s / 2))


def silence_libraries() -> None:
    """At their lower levels they log requests, and with them what publishers wrote."""
    for name in LIBRARY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
