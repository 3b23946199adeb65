"""What a cache of judgements keeps: the store fills it, whoever judges asks it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from decimal import Decimal

import pytest
from pydantic import SecretStr

from tests.fakes.store import FakeStore
from tests.support import samples
from tests.support.attributions import attribution_of, message_of
from worker.adapters.postgres.reuse import open_judgement_cache
from worker.adapters.postgres.store import open_store
from worker.core.model import (
    Answer,
    AnswerId,
    Attribution,
    Judgement,
    JudgeProfile,
    OwnerId,
    ReusedFrom,
    SourceId,
    TenantId,
    Usage,
)
from worker.core.reuse import reuse_hash
from worker.ports import AttributionStore, JudgementCache
from worker.settings import PostgresSettings, ReuseSettings, Settings, TextStorage


@dataclass(frozen=True, slots=True)
class Desk:
    """A store and the cache that it fills."""

    store: AttributionStore
    cache: JudgementCache


OpenDesk = Callable[..., AbstractAsyncContextManager[Desk]]


@pytest.fixture(params=["fake", pytest.param("postgres", marks=pytest.mark.postgres)])
def open_desk(request: pytest.FixtureRequest) -> OpenDesk:
    """Opens a desk on what the test has stored so far, as a restarted worker would."""
    if request.param == "fake":
        stored = FakeStore()

        @asynccontextmanager
        async def on_fake(*, texts: TextStorage = TextStorage.FULL, remembers: bool = True) -> AsyncIterator[Desk]:
            stored.remembers_judgements = remembers and texts is TextStorage.FULL
            yield Desk(stored, stored)

        return on_fake
    dsn = request.getfixturevalue("postgres_dsn")

    @asynccontextmanager
    async def on_postgres(*, texts: TextStorage = TextStorage.FULL, remembers: bool = True) -> AsyncIterator[Desk]:
        settings = Settings(postgres=PostgresSettings(dsn=SecretStr(dsn)), store_text=texts)
        async with (
            open_store(settings, code_version="test", remembers_judgements=remembers) as store,
            open_judgement_cache(store.database, ReuseSettings()) as cache,
        ):
            yield Desk(store, cache)

    return on_postgres


@pytest.fixture
async def desk(open_desk: OpenDesk) -> AsyncIterator[Desk]:
    async with open_desk() as opened:
        yield opened


async def settle(desk: Desk, attribution: Attribution) -> Attribution:
    await desk.store.save(attribution, message_of(attribution))
    return attribution


async def found(desk: Desk, answer: Answer, like: Attribution) -> Judgement | None:
    """What may be copied for this answer, judged by the same method."""
    return await desk.cache.find_judgement(answer.key.tenant, reuse_hash(answer, like.method.method_hash))


def paid(rows: list[list[int]] | None = None) -> Judgement:
    usage = Usage(calls=2, input_tokens=900, output_tokens=100, cost_usd=Decimal("0.001"))
    given = samples.judgement(rows)
    return replace(given, usage=usage, shuffle_seed=7, unevidenced={(0, 2): 7_000})


async def test_content_that_nobody_judged_is_not_found(desk: Desk) -> None:
    assert await found(desk, samples.answer(), attribution_of()) is None


async def test_a_judgement_is_copied_whole_names_its_origin_and_costs_nothing(desk: Desk) -> None:
    first = await settle(desk, attribution_of(samples.answer("a-1"), paid()))
    copy = await found(desk, samples.answer("a-2"), first)
    assert copy == replace(first.judgement, usage=Usage(), reused_from=ReusedFrom(AnswerId("a-1"), 1))


async def test_a_copy_of_a_copy_names_the_first(desk: Desk) -> None:
    first = await settle(desk, attribution_of(samples.answer("a-1"), paid()))
    copy = await found(desk, samples.answer("a-2"), first)
    assert copy is not None
    await settle(desk, attribution_of(samples.answer("a-2"), copy))
    again = await found(desk, samples.answer("a-3"), first)
    assert again is not None
    assert again.reused_from == ReusedFrom(AnswerId("a-1"), 1)


async def test_judgements_never_cross_tenants(desk: Desk) -> None:
    first = await settle(desk, attribution_of(samples.answer(tenant="one")))
    assert await found(desk, samples.answer(tenant="one"), first) is not None
    assert await found(desk, samples.answer(tenant="other"), first) is None


async def test_another_method_is_another_judgement(desk: Desk) -> None:
    await settle(desk, attribution_of())
    other = attribution_of(judge=JudgeProfile(name="test", version="2"))
    assert await found(desk, samples.answer("a-2"), other) is None


async def test_who_owns_a_source_and_what_it_is_called_decides_credit_and_no_judgement(desk: Desk) -> None:
    first = await settle(desk, attribution_of())
    answer = samples.answer("a-2")
    renamed = [replace(s, source_id=SourceId(f"x{i}"), owner_id=OwnerId("o")) for i, s in enumerate(answer.sources)]
    assert await found(desk, replace(answer, sources=tuple(renamed)), first) is not None


async def test_an_answer_without_sources_or_text_has_nothing_to_copy(desk: Desk) -> None:
    for answer in (samples.answer("a-1", source_count=0), samples.answer("a-2", text=" ")):
        nothing = await settle(desk, attribution_of(answer, samples.judgement([])))
        assert await found(desk, answer, nothing) is None


async def test_what_was_found_unsupported_is_copied_too(desk: Desk) -> None:
    first = await settle(desk, attribution_of(judgement=paid([[0, 0, 0]])))
    copy = await found(desk, samples.answer("a-2"), first)
    assert copy is not None
    assert copy.supports == ((0, 0, 0),)


async def test_of_many_judgements_of_one_content_one_is_copied(desk: Desk) -> None:
    async with asyncio.TaskGroup() as tasks:
        for index in range(20):
            tasks.create_task(settle(desk, attribution_of(samples.answer(f"a-{index}"))))
    copy = await found(desk, samples.answer("another"), attribution_of())
    assert copy is not None
    assert copy.reused_from is not None


async def test_a_restarted_worker_copies_what_was_judged_before(open_desk: OpenDesk) -> None:
    async with open_desk() as before:
        first = await settle(before, attribution_of())
    async with open_desk() as after:
        assert await found(after, samples.answer("a-2"), first) is not None


async def test_where_texts_are_not_kept_nothing_is_copied(open_desk: OpenDesk) -> None:
    """A copy without words could not be shown to anybody who asks why."""
    async with open_desk(texts=TextStorage.HASH) as hashing:
        first = await settle(hashing, attribution_of())
        assert await found(hashing, samples.answer("a-2"), first) is None


async def test_a_store_that_need_not_remember_does_not(open_desk: OpenDesk) -> None:
    async with open_desk(remembers=False) as forgetful:
        first = await settle(forgetful, attribution_of())
        assert await found(forgetful, samples.answer("a-2"), first) is None


async def test_many_look_ups_at_once_each_get_their_own(desk: Desk) -> None:
    settled = [attribution_of(samples.answer(f"a-{i}", text=f"Text {i}.")) for i in range(30)]
    for attribution in settled[:15]:
        await settle(desk, attribution)
    async with asyncio.TaskGroup() as tasks:
        finds = [tasks.create_task(found(desk, item.answer, item)) for item in settled]
    origins = [copy.reused_from.answer_id if (copy := find.result()) and copy.reused_from else None for find in finds]
    assert origins == [f"a-{i}" for i in range(15)] + [None] * 15
    assert TenantId("default") == settled[0].answer.key.tenant
