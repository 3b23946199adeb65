"""Waiting for what must become true, instead of for a time."""

import asyncio
from collections.abc import Awaitable, Callable

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


async def until_equal(look: Callable[[], Awaitable[object]], expected: object, timeout_s: float = 30.0) -> None:
    """Returns once what is looked up equals `expected`; fails the test with what it was last."""
    seen: object = None
    try:
        async with asyncio.timeout(timeout_s):
            while (seen := await look()) != expected:  # noqa: ASYNC110  # the same
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"still {seen!r} after {timeout_s:g} s, expected {expected!r}") from None
