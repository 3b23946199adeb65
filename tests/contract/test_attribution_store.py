import asyncio
from dataclasses import replace

import pytest

from tests.contract.conftest import Store
from tests.support import samples
from tests.support.attributions import attribution_of, message_of
from worker.core.model import Attribution, Judgement, JudgeProfile, Status
from worker.ports import SaveResult, SettledAnswer


async def save(store: Store, attribution: Attribution) -> SaveResult:
    return await store.save(attribution, message_of(attribution))


async def test_an_answer_nobody_settled_is_not_found(store: Store) -> None:
    assert await store.find(samples.answer().key, samples.record()) is None


async def test_a_saved_answer_is_found_with_its_content_hash_and_revision(store: Store) -> None:
    answer = samples.answer()
    assert await save(store, attribution_of(answer)) is SaveResult.SAVED
    assert await store.find(answer.key, samples.record()) == SettledAnswer(answer.content_hash, revision=1)


async def test_saving_the_same_answer_again_is_a_duplicate_and_announces_nothing(store: Store) -> None:
    results = [await save(store, attribution_of()) for _ in range(3)]
    assert results == [SaveResult.SAVED, SaveResult.DUPLICATE, SaveResult.DUPLICATE]
    assert await store.pending() == 1


async def test_another_method_does_not_settle_an_answer_again(store: Store) -> None:
    await save(store, attribution_of())
    after_deploy = attribution_of(judge=JudgeProfile(name="test", version="2"))
    assert await save(store, after_deploy) is SaveResult.DUPLICATE


async def test_other_content_under_a_settled_key_is_a_conflict_and_changes_nothing(store: Store) -> None:
    first = samples.answer()
    await save(store, attribution_of(first))
    assert await save(store, attribution_of(samples.answer(text="Tea is a plant."))) is SaveResult.CONFLICT
    assert await store.find(first.key, samples.record()) == SettledAnswer(first.content_hash, revision=1)
    assert await store.pending() == 1


async def test_the_same_answer_id_of_two_tenants_is_two_answers(store: Store) -> None:
    for tenant in ("one", "two"):
        assert await save(store, attribution_of(samples.answer(tenant=tenant))) is SaveResult.SAVED


async def test_of_simultaneous_saves_of_one_answer_exactly_one_is_saved(store: Store) -> None:
    same = attribution_of()
    other = attribution_of(samples.answer(text="Tea is a plant."))
    async with asyncio.TaskGroup() as tasks:
        saves = [tasks.create_task(save(store, given)) for given in (same, same, other, same)]
    results = [task.result() for task in saves]
    assert results.count(SaveResult.SAVED) == 1
    assert results.count(SaveResult.DUPLICATE) == 2
    assert results.count(SaveResult.CONFLICT) == 1
    assert await store.pending() == 1


async def test_many_simultaneous_finds_each_get_their_own_answer(store: Store) -> None:
    answers = [samples.answer(f"a-{index}", text=f"Text {index}.") for index in range(50)]
    for answer in answers[:25]:
        await save(store, attribution_of(answer))
    async with asyncio.TaskGroup() as tasks:
        finds = [tasks.create_task(store.find(answer.key, samples.record())) for answer in answers]
    found = [task.result() for task in finds]
    assert found == [SettledAnswer(answer.content_hash, 1) for answer in answers[:25]] + [None] * 25


@pytest.mark.parametrize(
    ("source_count", "judgement", "status"),
    [
        (3, samples.judgement([[10_000, 0, 3_000]]), Status.ATTRIBUTED),
        (3, samples.judgement([[0, 0, 0]]), Status.UNGROUNDED),
        (3, samples.judgement([]), Status.NO_KEY_POINTS),
        (0, samples.judgement([]), Status.NO_SOURCES),
    ],
)
async def test_every_outcome_is_stored_and_announced(
    store: Store, source_count: int, judgement: Judgement, status: Status
) -> None:
    attribution = attribution_of(samples.answer(source_count=source_count), judgement)
    assert attribution.status is status
    assert await save(store, attribution) is SaveResult.SAVED
    assert await store.pending() == 1


async def test_an_answer_settled_before_a_restart_is_found_after_it(store: Store) -> None:
    attribution = attribution_of()
    await save(store, attribution)
    again = replace(attribution, answer=replace(attribution.answer))
    assert await save(store, again) is SaveResult.DUPLICATE
