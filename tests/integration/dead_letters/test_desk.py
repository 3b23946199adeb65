import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from schemas.dead_letter import REPLAY_HEADER, REPLAYS_MAX, DeadLetterReason
from tests.integration.dead_letters.conftest import COPY_BYTES_MAX
from tests.support import samples
from worker.adapters.postgres.dead_letter_desk import DeadLetterDesk, DeadLetterFilter, Resolution
from worker.adapters.postgres.outbox_store import PostgresOutboxStore
from worker.adapters.postgres.store import PostgresStore
from worker.adapters.postgres.tables.queues import DeadLetterState
from worker.core.model import AnswerId, AnswerIdentity, AnswerKey, TenantId
from worker.core.records import Headers, OutboundMessage, Record
from worker.ports import DeadLetter

pytestmark = pytest.mark.postgres

ALL = DeadLetterFilter()


async def set_aside(
    store: PostgresStore,
    offset: int,
    *,
    value: bytes | None = b"not json",
    partition: int = 0,
    reason: DeadLetterReason = DeadLetterReason.NOT_JSON,
    key: AnswerKey | None = None,
    headers: Headers = (),
) -> int:
    record = replace(samples.record(value, offset=offset, partition=partition), headers=headers)
    letter = DeadLetter(record, reason, "why", attempts=1, identity=AnswerIdentity(key))
    await store.save_dead_letter(letter, OutboundMessage("answers.dead-letter", record.key, record.value))
    [newest] = await desk_of(store).find(ALL, rows_max=1)
    return newest.dead_letter_id


def desk_of(store: PostgresStore) -> DeadLetterDesk:
    return DeadLetterDesk(store.database)


async def replayed(store: PostgresStore) -> Sequence[OutboundMessage]:
    async with PostgresOutboxStore(store.database, topic="answers").claim(100) as rows:
        return [row.message for row in rows]


async def state_of(store: PostgresStore, dead_letter_id: int) -> tuple[DeadLetterState, bool, str | None]:
    found = await desk_of(store).read(dead_letter_id)
    assert found is not None
    letter, _ = found
    return letter.state, letter.resolved_at is not None, letter.resolution_note


async def test_a_replay_is_the_original_bytes_and_one_header_more(store: PostgresStore) -> None:
    headers = (("trace", b"\xff"), ("trace", b""))
    number = await set_aside(store, 7, value=b"\x00\xff", headers=headers)
    assert await desk_of(store).replay(number, to_topic="answers", note="mended") is Resolution.REPLAYED
    assert await replayed(store) == [OutboundMessage("answers", b"k", b"\x00\xff", (*headers, (REPLAY_HEADER, b"1")))]
    assert await state_of(store, number) == (DeadLetterState.REPLAYED, True, "mended")


async def test_many_replays_of_one_letter_are_one_replay(store: PostgresStore) -> None:
    number = await set_aside(store, 7)
    desk = desk_of(store)
    async with asyncio.TaskGroup() as tasks:
        replays = [tasks.create_task(desk.replay(number, to_topic="answers", note=None)) for _ in range(5)]
    ended = sorted(task.result() for task in replays)
    assert ended == [Resolution.NOT_OPEN] * 4 + [Resolution.REPLAYED]
    assert len(await replayed(store)) == 1


async def test_what_was_cut_cannot_be_replayed_and_stays_open(store: PostgresStore) -> None:
    number = await set_aside(store, 7, value=b"x" * (COPY_BYTES_MAX + 1))
    assert await desk_of(store).replay(number, to_topic="answers", note=None) is Resolution.TRUNCATED
    assert await replayed(store) == []
    assert await state_of(store, number) == (DeadLetterState.OPEN, False, None)


async def test_a_letter_at_the_limit_of_a_copy_is_whole(store: PostgresStore) -> None:
    number = await set_aside(store, 7, value=b"x" * COPY_BYTES_MAX)
    assert await desk_of(store).replay(number, to_topic="answers", note=None) is Resolution.REPLAYED


async def test_replays_of_one_record_come_to_an_end(store: PostgresStore) -> None:
    last = await set_aside(store, 7, headers=((REPLAY_HEADER, str(REPLAYS_MAX - 1).encode()),))
    past = await set_aside(store, 8, headers=((REPLAY_HEADER, str(REPLAYS_MAX).encode()),))
    desk = desk_of(store)
    assert await desk.replay(last, to_topic="answers", note=None) is Resolution.REPLAYED
    assert await desk.replay(past, to_topic="answers", note=None) is Resolution.REPLAYED_TOO_OFTEN


async def test_a_discarded_letter_keeps_its_bytes_and_says_why(store: PostgresStore) -> None:
    number = await set_aside(store, 7)
    desk = desk_of(store)
    assert await desk.discard(DeadLetterFilter(ids=(number,)), note="test\x00 traffic") == 1
    assert await desk.discard(DeadLetterFilter(ids=(number,)), note="again") == 0
    assert await desk.replay(number, to_topic="answers", note=None) is Resolution.NOT_OPEN
    assert await state_of(store, number) == (DeadLetterState.DISCARDED, True, "test\ufffd traffic")
    found = await desk.read(number)
    assert found is not None
    assert found[1] == samples.record(b"not json", offset=7)


async def test_a_workers_relay_leaves_replays_to_the_operators(store: PostgresStore) -> None:
    """A worker's principal may only read the answers topic: a replay it had to publish would stop it."""
    await desk_of(store).replay(await set_aside(store, 7), to_topic="answers", note=None)
    async with store.claim(100) as rows:
        assert [row.message.topic for row in rows] == ["answers.dead-letter"]
    assert await store.pending() == 0
    assert len(await replayed(store)) == 1


@pytest.mark.parametrize(
    "wanted",
    [
        DeadLetterFilter(reason=DeadLetterReason.JUDGE_REFUSED),
        DeadLetterFilter(tenant="t"),
        DeadLetterFilter(answer_id="a-1"),
        DeadLetterFilter(partition=3),
        DeadLetterFilter(offset=42),
        DeadLetterFilter(tenant="t", partition=3, state=DeadLetterState.OPEN, topic="answers"),
        DeadLetterFilter(since=datetime.now(UTC) - timedelta(hours=1), offset=42),
    ],
)
async def test_a_filter_means_what_has_all_that_it_names(store: PostgresStore, wanted: DeadLetterFilter) -> None:
    await set_aside(store, 1)
    key = AnswerKey(TenantId("t"), AnswerId("a-1"))
    number = await set_aside(store, 42, partition=3, reason=DeadLetterReason.JUDGE_REFUSED, key=key)
    desk = desk_of(store)
    assert [letter.dead_letter_id for letter in await desk.find(wanted, rows_max=10)] == [number]
    assert await desk.count(wanted) == 1
    assert await desk.open_ids(wanted) == [number]


@pytest.mark.parametrize(
    "wanted",
    [
        DeadLetterFilter(topic="others"),
        DeadLetterFilter(until=datetime(2020, 1, 1, tzinfo=UTC)),
        DeadLetterFilter(since=datetime(2100, 1, 1, tzinfo=UTC)),
        DeadLetterFilter(state=DeadLetterState.REPLAYED),
    ],
)
async def test_a_filter_leaves_out_the_rest(store: PostgresStore, wanted: DeadLetterFilter) -> None:
    await set_aside(store, 1)
    assert await desk_of(store).find(wanted, rows_max=10) == []


async def test_the_newest_are_listed_first_and_the_oldest_replayed_first(store: PostgresStore) -> None:
    numbers = [await set_aside(store, offset) for offset in range(5)]
    desk = desk_of(store)
    assert [letter.offset for letter in await desk.find(ALL, rows_max=2)] == [4, 3]
    assert await desk.open_ids(ALL) == numbers
    assert await desk.count(ALL) == 5


async def test_a_letter_that_does_not_exist_is_none(store: PostgresStore) -> None:
    assert await desk_of(store).read(1) is None
    assert await desk_of(store).replay(1, to_topic="answers", note=None) is Resolution.NOT_OPEN


async def test_a_letter_is_read_back_as_it_was_received(store: PostgresStore) -> None:
    record = Record("answers", 1, 7, -1, None, None, (("h", b"\x00"),))
    await store.save_dead_letter(
        DeadLetter(record, DeadLetterReason.TOO_LARGE, "why", 1), OutboundMessage("answers.dead-letter", None, None)
    )
    [letter] = await desk_of(store).find(ALL, rows_max=1)
    found = await desk_of(store).read(letter.dead_letter_id)
    assert found == (letter, record)
