"""Waiting for what must become true, instead of for a time."""

import asyncio
from collections.abc import Callable

LOOK_AGAIN_S = 0.001


async def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Returns once the condition holds; fails the test with its source position when it never does."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110  # what is waited for is anything a test can look at
                await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError:
        where = condition.__code__.co_firstlineno if hasattr(condition, "__code__") else condition
        raise AssertionError(f"the condition of line {where} did not become true in {timeout_s:g} s") from None
