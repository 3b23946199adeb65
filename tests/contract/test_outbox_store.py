import asyncio
import random

import pytest

from tests.contract.conftest import Store
from tests.support import samples
from tests.support.attributions import attribution_of
from worker.core.records import Headers, OutboundMessage
from worker.errors import UnavailableError


async def put(
    store: Store, name: str, *, key: bytes | None = None, value: bytes | None = b"v", headers: Headers = ()
) -> OutboundMessage:
    """A message in the outbox, announced by an answer of this name; its key is the name unless given."""
    message = OutboundMessage("attributions", key, value, headers)
    await store.save(attribution_of(samples.answer(name)), message)
    return message


async def published(store: Store, rows_max: int = 100) -> list[OutboundMessage]:
    async with store.claim(rows_max) as rows:
        return [row.message for row in rows]


async def test_an_empty_outbox_has_nothing_to_claim(store: Store) -> None:
    assert await published(store) == []
    assert await store.pending() == 0


async def test_rows_are_claimed_oldest_first_and_gone_afterwards(store: Store) -> None:
    messages = [await put(store, f"a-{index}", key=str(index).encode()) for index in range(10)]
    assert await published(store, 3) == messages[:3]
    assert await published(store) == messages[3:]
    assert await store.pending() == 0


async def test_leaving_by_an_exception_gives_the_rows_back(store: Store) -> None:
    message = await put(store, "a-1", key=b"k")
    with pytest.raises(UnavailableError, match="broker"):
        async with store.claim(10):
            raise UnavailableError("broker down")
    assert await published(store) == [message]


async def test_a_second_relay_takes_what_the_first_does_not_hold(store: Store) -> None:
    messages = [await put(store, f"a-{index}", key=str(index).encode()) for index in range(4)]
    async with store.claim(2) as first, store.claim(10) as second:
        assert [row.message for row in first] == messages[:2]
        assert [row.message for row in second] == messages[2:]
    assert await store.pending() == 0


async def test_rows_of_one_key_are_never_out_of_order_whoever_holds_the_first(store: Store) -> None:
    first = await put(store, "a-1", key=b"k", value=b"1")
    second = await put(store, "a-2", key=b"k", value=b"2")
    other = await put(store, "a-3", key=b"other")
    async with store.claim(1) as held, store.claim(10) as rest:
        assert [row.message for row in held] == [first]
        assert [row.message for row in rest] == [other]
    assert await published(store) == [second]


async def test_many_relays_publish_every_row_once_and_each_key_in_order(store: Store) -> None:
    chooser = random.Random(5)
    stored = [await put(store, f"a-{index}", key=b"%d" % (index % 9), value=b"%d" % index) for index in range(120)]
    broker: list[OutboundMessage] = []

    async def relay() -> None:
        while await store.pending():
            async with store.claim(chooser.randint(1, 7)) as rows:
                await asyncio.sleep(0)
                broker.extend(row.message for row in rows)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(relay())
    for key in {message.key for message in stored}:
        assert [m for m in broker if m.key == key] == [m for m in stored if m.key == key]


async def test_no_two_rows_of_one_key_are_claimed_at_a_time(store: Store) -> None:
    messages = [await put(store, f"a-{index}", key=b"k", value=str(index).encode()) for index in range(3)]
    assert [await published(store) for _ in range(3)] == [[message] for message in messages]


async def test_rows_without_a_key_owe_no_order_to_one_another(store: Store) -> None:
    messages = [await put(store, f"a-{index}", value=str(index).encode()) for index in range(3)]
    assert await published(store) == messages


async def test_a_message_comes_out_byte_for_byte(store: Store) -> None:
    headers = (("again", b"1"), ("again", b"1"), ("", b""), ("ключ\x00", bytes(range(256))))
    message = await put(store, "a-1", key=bytes(range(256)) * 100, value=None, headers=headers)
    assert await published(store) == [message]
