import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from schemas.dead_letter import DeadLetterReason
from tests.contract.conftest import LIMITS, OpenStore, Store
from tests.support import samples
from tests.support.attributions import attribution_of, message_of
from worker.core.model import Answer, AnswerId, AnswerIdentity, AnswerKey, TenantId
from worker.core.outcome import Outcome
from worker.core.records import OutboundMessage, Record
from worker.errors import FatalError
from worker.ports import DeadLetter, SaveResult, SetAside


def dead_letter(offset: int = 0, value: bytes | None = b"not json") -> DeadLetter:
    record = samples.record(value, offset=offset)
    return DeadLetter(record, DeadLetterReason.NOT_JSON, "value: not JSON", attempts=1)


def message(record: Record) -> OutboundMessage:
    return OutboundMessage("answers.dead-letter", record.key, record.value)


async def set_aside(store: Store, letter: DeadLetter) -> None:
    await store.save_dead_letter(letter, message(letter.record))


async def settle(store: Store, answer_id: str) -> None:
    attribution = attribution_of(samples.answer(answer_id))
    await store.save(attribution, message_of(attribution))


async def set_aside_until_refused(store: Store, first_offset: int = 0) -> int:
    """How many were written before the refusal; never more than a hundred."""
    for written in range(100):
        try:
            await set_aside(store, dead_letter(first_offset + written))
        except FatalError:
            return written
    return 100


async def test_a_dead_letter_leaves_by_the_outbox(store: Store) -> None:
    letter = dead_letter()
    await set_aside(store, letter)
    async with store.claim(10) as rows:
        assert [row.message for row in rows] == [message(letter.record)]


async def test_a_redelivered_dead_letter_changes_nothing(store: Store) -> None:
    for _ in range(LIMITS.consecutive_max * 3):
        await set_aside(store, dead_letter())
    assert await store.pending() == 1


async def test_a_record_that_was_set_aside_is_known_again_by_its_place_and_time(store: Store) -> None:
    letter = dead_letter(7)
    await set_aside(store, letter)
    key = samples.answer("a-1").key
    assert await store.find(key, letter.record) == SetAside()
    assert await store.find(key, replace(letter.record, offset=8)) is None
    assert await store.find(key, replace(letter.record, partition=1)) is None
    assert await store.find(key, replace(letter.record, timestamp_ms=1)) is None, "a topic made anew"


async def test_another_record_at_the_same_offset_is_another_dead_letter(store: Store) -> None:
    await set_aside(store, dead_letter(value=b"before the topic was made anew"))
    await set_aside(store, dead_letter(value=b"after"))
    assert await store.pending() == 2


def fault_of(answer: Answer, *, offset: int = 7, content: bytes | None = None) -> DeadLetter:
    """A valid event that could not be judged."""
    record = samples.record_of(answer, offset=offset)
    identity = AnswerIdentity(answer.key, content or answer.content_hash)
    return DeadLetter(record, DeadLetterReason.ATTEMPTS_EXHAUSTED, "five tries", 5, identity)


async def test_what_another_worker_set_aside_meanwhile_is_not_attributed_as_well(store: Store) -> None:
    """A frozen worker wakes with a record that its successor has given up."""
    answer = samples.answer()
    letter = fault_of(answer)
    await set_aside(store, letter)
    attribution = attribution_of(answer)
    saved = await store.save(attribution, message_of(attribution), letter.record)
    assert saved is SaveResult.SET_ASIDE
    assert await store.pending() == 1, "the dead letter alone is announced"
    later = samples.record_of(answer, offset=8)
    assert await store.find(answer.key, later) is None
    assert await store.save(attribution, message_of(attribution), later) is SaveResult.SAVED, "its replay"


async def test_what_another_worker_attributed_meanwhile_is_not_set_aside_as_well(store: Store) -> None:
    answer = samples.answer()
    await settle(store, "a-1")
    letter = fault_of(answer)
    assert await store.save_dead_letter(letter, message(letter.record)) is Outcome.DUPLICATE
    assert await store.find(samples.answer("a-2").key, letter.record) is None, "it is no dead letter"
    assert await store.pending() == 1, "the attribution alone is announced"


async def test_other_content_and_unreadable_content_are_set_aside_whatever_is_settled(store: Store) -> None:
    await settle(store, "a-1")
    other = fault_of(samples.answer(), content=b"o" * 32)
    unread = replace(fault_of(samples.answer(), offset=8), identity=AnswerIdentity(samples.answer().key))
    for letter in (other, unread):
        assert await store.save_dead_letter(letter, message(letter.record)) is Outcome.DEAD_LETTER


async def test_of_two_workers_with_one_record_only_one_gives_it_its_outcome(open_again: OpenStore) -> None:
    """Both at the same moment, many times: whoever commits second leaves it as it is."""
    records = 40
    attributed, given_up = [], []

    async def attribute(store: Store, number: int) -> None:
        attribution = attribution_of(samples.answer(f"a-{number}"))
        record = samples.record_of(attribution.answer, offset=number)
        if await store.save(attribution, message_of(attribution), record) is SaveResult.SAVED:
            attributed.append(number)

    async def give_up(store: Store, number: int) -> None:
        letter = fault_of(samples.answer(f"a-{number}"), offset=number)
        if await store.save_dead_letter(letter, message(letter.record)) is Outcome.DEAD_LETTER:
            given_up.append(number)

    async with open_again() as one, open_again() as other:
        for number in range(records):
            await settle(one, f"b-{number}")
            await settle(one, f"c-{number}")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(attribute(one, number))
                tasks.create_task(give_up(other, number))
        assert sorted(attributed + given_up) == list(range(records))
        assert await one.pending() == 3 * records


async def test_a_dead_letter_may_name_its_answer_and_have_no_value_or_key(store: Store) -> None:
    record = Record("answers", 0, 7, -1, key=None, value=None)
    key = AnswerKey(TenantId("t\x00"), AnswerId("a\ud800"))
    letter = DeadLetter(record, DeadLetterReason.JUDGE_REFUSED, "refused: \x00\udfff", 3, AnswerIdentity(key))
    await set_aside(store, letter)
    assert await store.pending() == 1


async def test_a_build_that_fails_every_record_stops_at_the_limit_and_a_restart_does_not_reset_it(
    open_again: OpenStore,
) -> None:
    async with open_again() as store:
        assert await set_aside_until_refused(store) == LIMITS.consecutive_max
    for restart in range(10):
        async with open_again() as store:
            with pytest.raises(FatalError, match="attribution-worker resume"):
                await store.check_dead_letter_limits()
            assert await set_aside_until_refused(store, first_offset=1_000 * (restart + 1)) == 0
            assert await store.pending() == LIMITS.consecutive_max


async def test_workers_that_fail_together_write_no_more_than_one_would(open_again: OpenStore) -> None:
    async def set_aside_or_stop(store: Store, offset: int) -> None:
        with suppress(FatalError):
            await set_aside(store, dead_letter(offset))

    async with open_again() as one, open_again() as other, asyncio.TaskGroup() as tasks:
        for offset in range(20):
            tasks.create_task(set_aside_or_stop((one, other)[offset % 2], offset))
    async with open_again() as store:
        assert await store.pending() == LIMITS.consecutive_max


async def test_a_redelivery_past_the_limit_is_no_error(store: Store) -> None:
    await set_aside_until_refused(store)
    await set_aside(store, dead_letter(0))
    assert await store.pending() == LIMITS.consecutive_max


async def test_a_settled_answer_ends_a_run_of_dead_letters(store: Store) -> None:
    for index in range(10):
        await settle(store, f"a-{index}")
        await settle(store, f"b-{index}")
        for offset in range(LIMITS.consecutive_max):
            await set_aside(store, dead_letter(10 * index + offset))
    with pytest.raises(FatalError, match="consecutive_max"):
        await set_aside(store, dead_letter(1_000))


async def test_too_large_a_share_of_dead_letters_stops_even_with_answers_in_between(store: Store) -> None:
    await settle(store, "a-1")
    await set_aside(store, dead_letter(1))
    await set_aside(store, dead_letter(2))
    with pytest.raises(FatalError, match="ratio_max"):
        await set_aside(store, dead_letter(3))
    assert await store.pending() == 3
    await settle(store, "a-2")
    await set_aside(store, dead_letter(3))


async def test_a_few_dead_letters_at_the_very_beginning_are_no_ratio(store: Store) -> None:
    for offset in range(LIMITS.consecutive_max - 1):
        await set_aside(store, dead_letter(offset))
    await store.check_dead_letter_limits()


async def test_a_share_within_the_limit_never_stops(store: Store) -> None:
    for index in range(30):
        await settle(store, f"a-{index}")
        await settle(store, f"b-{index}")
        await set_aside(store, dead_letter(index))
    await store.check_dead_letter_limits()


async def test_an_operator_lets_the_worker_go_on_and_the_limits_count_anew(store: Store) -> None:
    await set_aside_until_refused(store)
    await store.resume("the bad deploy was rolled back")
    await store.check_dead_letter_limits()
    assert await set_aside_until_refused(store, first_offset=1_000) == LIMITS.consecutive_max


async def test_a_refused_dead_letter_is_written_after_the_resume(store: Store) -> None:
    await set_aside_until_refused(store)
    refused = dead_letter(LIMITS.consecutive_max)
    with suppress(FatalError):
        await set_aside(store, refused)
    await store.resume("mended")
    await set_aside(store, refused)
    assert await store.pending() == LIMITS.consecutive_max + 1
