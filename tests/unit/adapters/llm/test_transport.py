"""Pools share connections out: all of them, and no more."""

import pytest

from worker.adapters.llm.transport import POOL_CONNECTIONS_MAX, PooledTransport


@pytest.mark.parametrize("connections_max", [1, 31, 32, 33, 64, 100, 500])
def test_pools_are_small_and_hold_what_they_should_together(connections_max: int) -> None:
    sizes = [pool.size for pool in PooledTransport(connections_max)._pools]
    assert sum(sizes) == connections_max
    assert max(sizes) <= POOL_CONNECTIONS_MAX
    assert max(sizes) - min(sizes) <= 1
