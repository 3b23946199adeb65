"""The same content is judged once, and a copy says whose it is."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from schemas.dead_letter import DeadLetterReason
from tests.fakes.judge import full_support
from tests.support import samples
from tests.support.judging import in_virtual_time, together
from worker import reuse
from worker.core.model import Answer, AnswerId, Judgement, JudgeProfile, ReusedFrom, TenantId, Usage
from worker.core.reuse import reuse_hash
from worker.errors import PermanentError, UnavailableError
from worker.reuse import ReuseJudgements
from worker.telemetry import Telemetry

METHOD = b"m" * 32
PAID = Usage(calls=2, input_tokens=900)
ELSEWHERE = ReusedFrom(AnswerId("elsewhere"), 3)


@dataclass
class Judging:
    """A judge that takes its time, fails with each of `failures` in turn, and a cache that knows what it is given."""

    failures: list[Exception] = field(default_factory=list)
    takes_s: float = 10.0
    profile: JudgeProfile | None = None
    judged: list[str] = field(default_factory=list)
    stored: dict[tuple[TenantId, bytes], Judgement] = field(default_factory=dict)
    looked_up: int = 0
    cache_down: bool = False

    def __post_init__(self) -> None:
        self.reuse = ReuseJudgements(self._judge, cache=self, method_hash=METHOD, telemetry=Telemetry())

    async def _judge(self, answer: Answer) -> Judgement:
        self.judged.append(answer.key.answer_id)
        await asyncio.sleep(self.takes_s)
        if self.failures:
            raise self.failures.pop(0)
        return replace(full_support(answer), usage=PAID, profile=self.profile)

    async def find_judgement(self, tenant: TenantId, reuse_hash: bytes) -> Judgement | None:
        self.looked_up += 1
        await asyncio.sleep(0.1)
        if self.cache_down:
            raise UnavailableError("the database is down")
        return self.stored.get((tenant, reuse_hash))


@in_virtual_time
async def test_twins_in_flight_are_judged_once_and_the_copies_cost_nothing_and_name_their_origin() -> None:
    judging = Judging()
    first, *others = await together(*(judging.reuse(samples.answer(f"a-{number}")) for number in range(20)))
    assert judging.judged == ["a-0"]
    assert (first.usage, first.reused_from) == (PAID, None)
    for copy in others:
        assert copy == replace(first, usage=Usage(), reused_from=ReusedFrom(AnswerId("a-0"), 1))
    assert judging.looked_up == 1


@in_virtual_time
async def test_a_twin_of_a_judgement_that_may_not_be_stored_yet_is_copied_too() -> None:
    judging = Judging()
    await judging.reuse(samples.answer("a-1"))
    assert (await judging.reuse(samples.answer("a-2"))).reused_from == ReusedFrom(AnswerId("a-1"), 1)
    assert judging.judged == ["a-1"]


@pytest.mark.parametrize(
    "other",
    [
        samples.answer("a-2", tenant="another"),
        samples.answer("a-2", text="Another text."),
        samples.answer("a-2", source_count=2),
        replace(samples.answer("a-2"), query="Another query?"),
    ],
)
@in_virtual_time
async def test_other_content_or_another_tenant_is_judged_for_itself(other: Answer) -> None:
    judging = Judging()
    await together(judging.reuse(samples.answer("a-1")), judging.reuse(other))
    assert judging.judged == ["a-1", "a-2"]


@in_virtual_time
async def test_what_is_stored_is_copied_with_its_own_origin_for_twins_too() -> None:
    judging = Judging()
    kept = replace(full_support(samples.answer()), reused_from=ELSEWHERE)
    judging.stored[TenantId("default"), reuse_hash(samples.answer(), METHOD)] = kept
    copies = await together(*(judging.reuse(samples.answer(f"a-{number}")) for number in range(3)))
    assert copies == [kept] * 3
    assert judging.judged == []


@in_virtual_time
async def test_when_the_judging_fails_its_twins_are_judged_for_themselves_once() -> None:
    failure = PermanentError(DeadLetterReason.JUDGE_REFUSED, "of the first")
    judging = Judging(failures=[failure])
    ends = await together(*(judging.reuse(samples.answer(f"a-{number}")) for number in range(4)))
    assert ends[0] is failure
    assert judging.judged == ["a-0", "a-1"]
    assert [end.reused_from for end in ends[1:]] == [None] + [ReusedFrom(AnswerId("a-1"), 1)] * 2


@in_virtual_time
async def test_when_the_judging_is_cancelled_a_twin_takes_over() -> None:
    judging = Judging()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(judging.reuse(samples.answer("a-1")))
        second = tasks.create_task(judging.reuse(samples.answer("a-2")))
        await asyncio.sleep(5)
        first.cancel()
    assert second.result().reused_from is None
    assert judging.judged == ["a-1", "a-2"]


@in_virtual_time
async def test_a_twin_that_is_cancelled_leaves_the_judging_alone() -> None:
    judging = Judging()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(judging.reuse(samples.answer("a-1")))
        second = tasks.create_task(judging.reuse(samples.answer("a-2")))
        await asyncio.sleep(5)
        second.cancel()
    assert first.result().usage == PAID


@in_virtual_time
async def test_the_same_record_twice_is_one_judgement_with_its_real_cost() -> None:
    """Whichever of the two is saved first: it paid, and is no copy of itself."""
    judging = Judging()
    first, second = await together(judging.reuse(samples.answer()), judging.reuse(samples.answer()))
    assert first == second
    assert (second.usage, second.reused_from) == (PAID, None)
    assert judging.judged == ["a-1"]


@in_virtual_time
async def test_the_database_being_down_is_told_to_all_and_then_the_content_is_judged() -> None:
    judging = Judging(cache_down=True)
    ends = await together(*(judging.reuse(samples.answer(f"a-{number}")) for number in range(3)))
    assert {type(end) for end in ends} == {UnavailableError}
    judging.cache_down = False
    await judging.reuse(samples.answer("a-9"))
    assert judging.judged == ["a-9"]


@in_virtual_time
async def test_a_fallbacks_judgement_is_copied_to_those_who_waited_for_it_and_to_nobody_later() -> None:
    """The first judge may be well again: its method is the configured one."""
    judging = Judging(profile=JudgeProfile("fallback", "1"))
    waited = await together(*(judging.reuse(samples.answer(f"a-{number}")) for number in range(2)))
    judging.profile = None
    later = await judging.reuse(samples.answer("a-9"))
    assert [end.profile for end in waited] == [JudgeProfile("fallback", "1")] * 2
    assert (later.profile, later.reused_from) == (None, None)
    assert judging.judged == ["a-0", "a-9"]


@pytest.mark.parametrize("nothing_to_judge", [samples.answer(text=" "), samples.answer(source_count=0)])
@in_virtual_time
async def test_an_answer_with_nothing_to_judge_is_not_looked_up(nothing_to_judge: Answer) -> None:
    judging = Judging()
    await judging.reuse(nothing_to_judge)
    assert judging.looked_up == 0


@in_virtual_time
async def test_only_the_latest_judgements_are_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse, "RECENT_MAX", 5)
    judging = Judging(takes_s=0)
    name: Callable[[int], str] = "Text number {}.".format
    for number in range(12):
        await judging.reuse(samples.answer(f"a-{number}", text=name(number)))
    for number in range(12):
        await judging.reuse(samples.answer(f"b-{number}", text=name(number)))
    again = [answer_id for answer_id in judging.judged if answer_id.startswith("b")]
    assert 7 <= len(again) <= 12
    assert judging.reuse.remembered <= 5
