import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from itertools import count, pairwise
from typing import Any

import pytest

from tests.fakes.rate_limited_account import RateLimitedAccount
from tests.support.limiters import MODEL, SMALL, LimiterParts, now_ns
from tests.support.virtual_time import run_in_virtual_time
from worker.core.breaker import BreakerState
from worker.core.buckets import SECOND_NS
from worker.core.charging import ANTHROPIC_CHARGING, Charge, Dimension, Estimate
from worker.core.llm import CompletionUsage
from worker.errors import UnavailableError
from worker.limiter import CallTooLargeError, Limiter, Slot
from worker.settings import LimiterSettings, ModelLimits

NOTHING: Mapping[str, str] = {}
USAGE = CompletionUsage(input_tokens=100, output_tokens=20)


def limits(**given: Any) -> LimiterSettings:
    """A minute's burst from the start, so that sums come out round."""
    return LimiterSettings(**{"burst_s": 60.0, "initial_burst_s": 60.0, **given})


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        run_in_virtual_time(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def seconds_to(granted: Callable[[], Awaitable[object]]) -> float:
    since_ns = now_ns()
    await granted()
    return (now_ns() - since_ns) / SECOND_NS


async def served(limiter: Limiter, *, admission: int = 1, estimate: Estimate = SMALL, takes_s: float = 0.0) -> Slot:
    """One call, from the line to its settlement."""
    async with limiter.slot(admission=admission, estimate=estimate) as slot:
        slot.sent()
        await asyncio.sleep(takes_s)
        slot.answered(200, NOTHING)
        slot.settle(CompletionUsage(estimate.input_tokens, 0))
        return slot


async def refused(limiter: Limiter, status: int, headers: Mapping[str, str] = NOTHING) -> None:
    async with limiter.slot(admission=1, estimate=SMALL) as slot:
        slot.answered(status, headers)


async def lost(limiter: Limiter) -> None:
    """Sent, and then its caller went away."""
    async with limiter.slot(admission=1, estimate=SMALL) as slot:
        slot.sent()


async def failed(limiter: Limiter) -> None:
    async with limiter.slot(admission=1, estimate=SMALL) as slot:
        slot.sent()
        slot.unanswered()


def tokens_left(limiter: Limiter) -> int:
    return limiter.state().account.available[Dimension.TOKENS]


@in_virtual_time
async def test_without_limits_nobody_waits() -> None:
    limiter = LimiterParts(limits(calls_in_flight=10**6)).build()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(served(limiter)) for _ in range(1_000)]
    assert sum(task.result().waited_s for task in tasks) == 0


@in_virtual_time
async def test_concurrent_calls_never_use_more_than_the_limit() -> None:
    """litellm#18730: five calls at once burned 663 tokens of a limit of 100, for usage was counted when they ended."""
    limiter = LimiterParts(limits(tokens_per_minute=100)).build()
    ends_s: list[float] = []

    async def call() -> None:
        await served(limiter, estimate=Estimate(input_tokens=50, output_tokens_max=50), takes_s=5)
        ends_s.append(now_ns() / SECOND_NS)

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(call())
    assert ends_s == pytest.approx([5, 70, 135, 200, 265], abs=0.01)


@in_virtual_time
async def test_a_large_call_at_the_head_is_not_passed_by_small_ones_and_they_wait_only_for_its_refill() -> None:
    """aiolimiter wakes the smallest waiter first: a large one starves as long as small ones come."""
    limiter = LimiterParts(limits(tokens_per_minute=6_000)).build()
    order: list[str] = []

    async def call(name: str, admission: int, tokens: int) -> None:
        async with limiter.slot(admission=admission, estimate=Estimate(tokens, 0)) as slot:
            order.append(name)
            slot.sent()
            slot.answered(200, NOTHING)
            slot.settle(CompletionUsage(tokens, 0))

    async with asyncio.TaskGroup() as group:
        group.create_task(call("first", 1, 6_000))
        group.create_task(call("large", 2, 5_000))
        for number in range(3, 9):
            group.create_task(call("small", number, 10))
    assert order == ["first", "large", *["small"] * 6]
    assert now_ns() / SECOND_NS == pytest.approx(50.6, abs=0.01)


@in_virtual_time
async def test_a_half_judged_answer_goes_before_one_that_came_later() -> None:
    limiter = LimiterParts(limits(calls_in_flight=1)).build()
    order: list[tuple[int, str]] = []

    async def answer(admission: int) -> None:
        for stage in ("decompose", "score"):
            async with limiter.slot(admission=admission, estimate=SMALL):
                order.append((admission, stage))
                await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for admission in (1, 2, 3):
            group.create_task(answer(admission))
    # The first answer's second call comes when the second answer's first is granted already; the third's is not.
    assert order == [
        (1, "decompose"),
        (2, "decompose"),
        (1, "score"),
        (2, "score"),
        (3, "decompose"),
        (3, "score"),
    ]


@in_virtual_time
async def test_unused_tokens_are_there_for_others_as_soon_as_a_call_settles() -> None:
    limiter = LimiterParts(limits(tokens_per_minute=1_000), rule=ANTHROPIC_CHARGING).build()
    async with limiter.slot(admission=1, estimate=Estimate(500, 500)) as slot:
        slot.sent()
        slot.answered(200, NOTHING)
        assert tokens_left(limiter) == 0
        slot.settle(CompletionUsage(input_tokens=400, output_tokens=50))
        assert tokens_left(limiter) == 550


@in_virtual_time
async def test_a_call_that_never_left_costs_nothing() -> None:
    limiter = LimiterParts(limits(tokens_per_minute=1_000, requests_per_minute=60)).build()
    with pytest.raises(ConnectionError):
        async with limiter.slot(admission=1, estimate=SMALL):
            raise ConnectionError
    assert limiter.state().account.available == {Dimension.REQUESTS: 60, Dimension.TOKENS: 1_000}


@in_virtual_time
async def test_a_call_that_may_have_been_served_stays_charged() -> None:
    limiter = LimiterParts(limits(tokens_per_minute=1_000, unseen_s_max=10), rule=ANTHROPIC_CHARGING).build()
    await lost(limiter)
    assert tokens_left(limiter) == 800
    await asyncio.sleep(10)
    assert limiter.state().account.held == 0
    assert tokens_left(limiter) == 800


@in_virtual_time
async def test_input_beyond_the_estimate_is_charged_when_the_call_settles() -> None:
    limiter = LimiterParts(limits(tokens_per_minute=1_000)).build()
    async with limiter.slot(admission=1, estimate=Estimate(10, 0)) as slot:
        slot.sent()
        slot.settle(CompletionUsage(input_tokens=1_200, output_tokens=0))
    assert tokens_left(limiter) == -200


@in_virtual_time
async def test_a_call_settles_once() -> None:
    limiter = LimiterParts(limits()).build()
    async with limiter.slot(admission=1, estimate=SMALL) as slot:
        slot.settle(USAGE)
        with pytest.raises(RuntimeError, match="once"):
            slot.settle(USAGE)


@in_virtual_time
async def test_a_call_larger_than_its_limit_is_told_so_at_once() -> None:
    limiter = LimiterParts(limits(tokens_per_minute=1_000)).build()
    with pytest.raises(CallTooLargeError, match="one call takes 1001 tokens, the limit is 1000 a minute"):
        await served(limiter, estimate=Estimate(900, 101))
    assert limiter.state().waiting == 0


@in_virtual_time
async def test_an_output_cap_beyond_the_limit_is_fine_where_the_cap_costs_nothing() -> None:
    limiter = LimiterParts(limits(output_tokens_per_minute=1_000), rule=ANTHROPIC_CHARGING).build()
    assert await seconds_to(lambda: served(limiter, estimate=Estimate(10, 8_192))) == 0


@in_virtual_time
async def test_a_model_may_have_limits_of_its_own() -> None:
    settings = limits(requests_per_minute=1, models={MODEL: ModelLimits(requests_per_minute=100)})
    assert LimiterParts(settings).build().state().account.available == {Dimension.REQUESTS: 100}


@in_virtual_time
async def test_nobody_calls_while_the_provider_asks_for_a_pause() -> None:
    limiter = LimiterParts(limits()).build()
    await refused(limiter, 429, {"Retry-After": "17"})
    assert await seconds_to(lambda: served(limiter)) == pytest.approx(17)


@pytest.mark.parametrize("header", ["99999999", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_no_retry_after_makes_a_pause_longer_than_its_limit(header: str) -> None:
    """zotero-mcp#549: a computed wait of 33 hours."""

    async def scenario() -> None:
        limiter = LimiterParts(limits(pause_max_s=90)).build()
        await refused(limiter, 429, {"Retry-After": header})
        assert await seconds_to(lambda: served(limiter)) == pytest.approx(90)

    run_in_virtual_time(scenario())


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "soon"}, {"Retry-After": "-3"}, {"Retry-After": "0"}])
def test_a_refusal_without_a_usable_wait_pauses_by_itself(headers: dict[str, str]) -> None:
    async def scenario() -> None:
        limiter = LimiterParts(limits(pause_s=2)).build()
        await refused(limiter, 429, headers)
        assert await seconds_to(lambda: served(limiter)) == pytest.approx(2)

    run_in_virtual_time(scenario())


@in_virtual_time
async def test_after_a_refusal_calls_come_back_one_by_one_in_their_order() -> None:
    """ShokoServer#1348: all waiters woke together after a 429, and each was tried more than 60 times."""
    limiter = LimiterParts(limits(requests_per_minute=60, calls_in_flight=50)).build()
    granted_s: list[float] = []

    async def call(admission: int) -> None:
        await served(limiter, admission=admission)
        granted_s.append(now_ns() / SECOND_NS)

    await refused(limiter, 429, {"Retry-After": "10"})
    async with asyncio.TaskGroup() as group:
        for admission in range(20):
            group.create_task(call(admission))
    assert granted_s == sorted(granted_s)
    gaps_s = [later - earlier for earlier, later in pairwise(granted_s[5:])]
    assert min(gaps_s) > 0.9


@in_virtual_time
async def test_whoever_is_refused_sends_fewer_calls_at_once_also_where_no_rate_is_known() -> None:
    limiter = LimiterParts(limits(calls_in_flight=10, pause_s=1)).build()
    await refused(limiter, 429)
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(served(limiter, takes_s=5))
        await asyncio.sleep(2)
        assert limiter.state().account.calls_in_flight == 5


@in_virtual_time
async def test_pauses_grow_while_refusals_go_on_and_a_served_call_ends_the_row() -> None:
    limiter = LimiterParts(limits(pause_s=1)).build()
    for pause_s in (1, 2, 4):
        await refused(limiter, 429)
        assert limiter.state().account.paused_s == pytest.approx(pause_s)
    await served(limiter)
    await refused(limiter, 429)
    assert limiter.state().account.paused_s == pytest.approx(1)


@in_virtual_time
async def test_overload_slows_down_and_counts_towards_an_outage() -> None:
    """claude-code#82500: episodes of 529 ran every retry dry."""
    parts = LimiterParts(limits(pause_s=0.001))
    limiter = parts.build()
    for _ in range(5):
        await refused(limiter, 529)
    assert limiter.state().account.speed < 0.1
    with pytest.raises(UnavailableError, match="down") as raised:
        await served(limiter)
    assert raised.value.retry_after_s == pytest.approx(15)


@in_virtual_time
async def test_a_429_is_no_outage() -> None:
    limiter = LimiterParts(limits(pause_s=0.001)).build()
    for _ in range(10):
        await refused(limiter, 429)
    assert limiter.state().account.breaker is BreakerState.CLOSED


@in_virtual_time
async def test_when_the_provider_goes_down_everyone_in_line_is_told() -> None:
    limiter = LimiterParts(limits(calls_in_flight=1)).build()
    for _ in range(4):
        await failed(limiter)
    turned_away: list[UnavailableError] = []

    async def wait_in_line() -> None:
        try:
            await served(limiter)
        except UnavailableError as error:
            turned_away.append(error)

    async with asyncio.TaskGroup() as group, limiter.slot(admission=1, estimate=SMALL) as slot:
        for _ in range(3):
            group.create_task(wait_in_line())
        await asyncio.sleep(1)
        assert limiter.state().waiting == 3
        slot.unanswered()
    assert [error.retry_after_s for error in turned_away] == [15.0] * 3
    assert limiter.state().account.calls_in_flight == 0


@in_virtual_time
async def test_one_call_probes_a_provider_that_was_down_and_its_answer_lets_the_others_in() -> None:
    limiter = LimiterParts(limits()).build()
    for _ in range(5):
        await failed(limiter)
    await asyncio.sleep(15)
    async with limiter.slot(admission=1, estimate=SMALL) as probe:
        with pytest.raises(UnavailableError):
            await served(limiter)
        probe.answered(200, NOTHING)
        await served(limiter)


@in_virtual_time
async def test_an_abandoned_probe_does_not_keep_the_provider_shut_off() -> None:
    limiter = LimiterParts(limits()).build()
    for _ in range(5):
        await failed(limiter)
    await asyncio.sleep(15)
    await lost(limiter)
    await served(limiter)
    assert limiter.state().account.breaker is BreakerState.CLOSED


@in_virtual_time
async def test_an_outage_seen_through_one_model_closes_its_sister() -> None:
    parts = LimiterParts(limits())
    one, sister = parts.build(), parts.build()
    for _ in range(5):
        await failed(one)
    with pytest.raises(UnavailableError):
        await served(sister)


@in_virtual_time
async def test_no_wait_is_longer_than_its_limit_and_a_long_one_is_told_once() -> None:
    parts = LimiterParts(limits(tokens_per_minute=100, wait_max_s=45, long_wait_s=30))
    limiter = parts.build()
    await served(limiter, estimate=Estimate(100, 0))
    started_ns = now_ns()
    with pytest.raises(UnavailableError, match="no call through for 45 s"):
        await served(limiter, estimate=Estimate(100, 0))
    assert (now_ns() - started_ns) / SECOND_NS == pytest.approx(45)
    assert parts.long_waits_s == pytest.approx([30])
    assert limiter.state().waiting == 0


@in_virtual_time
async def test_a_short_wait_is_not_worth_a_word() -> None:
    parts = LimiterParts(limits(tokens_per_minute=100))
    limiter = parts.build()
    await served(limiter, estimate=Estimate(100, 0))
    assert await seconds_to(lambda: served(limiter, estimate=Estimate(40, 0))) == pytest.approx(24)
    assert parts.long_waits_s == []


@in_virtual_time
async def test_whoever_gives_up_at_the_head_does_not_hold_up_the_next() -> None:
    limiter = LimiterParts(limits(tokens_per_minute=6_000)).build()
    await served(limiter, estimate=Estimate(6_000, 0))
    async with asyncio.TaskGroup() as group:
        large = group.create_task(served(limiter, admission=1, estimate=Estimate(6_000, 0)))
        small = group.create_task(served(limiter, admission=2, estimate=Estimate(200, 0)))
        await asyncio.sleep(1)
        large.cancel()
    assert small.result().waited_s == pytest.approx(2)


@in_virtual_time
async def test_a_call_cancelled_between_its_grant_and_its_waking_gives_everything_back() -> None:
    limiter = LimiterParts(limits(calls_in_flight=1, tokens_per_minute=1_000)).build()
    async with asyncio.TaskGroup() as group:
        async with limiter.slot(admission=1, estimate=SMALL):
            waiting = group.create_task(served(limiter))
            await asyncio.sleep(1)
        waiting.cancel()
    assert waiting.cancelled()
    assert limiter.state().account.calls_in_flight == 0
    assert tokens_left(limiter) == 1_000


@in_virtual_time
async def test_a_call_cancelled_between_being_turned_away_and_its_waking_leaves_nothing_behind() -> None:
    limiter = LimiterParts(limits(calls_in_flight=1)).build()
    for _ in range(4):
        await failed(limiter)
    async with asyncio.TaskGroup() as group, limiter.slot(admission=1, estimate=SMALL) as slot:
        waiting = group.create_task(served(limiter))
        await asyncio.sleep(1)
        slot.unanswered()
        waiting.cancel()
    assert waiting.cancelled()
    assert limiter.state().waiting == 0


@pytest.mark.parametrize("steps", range(14))
def test_a_cancellation_at_any_step_of_any_call_leaks_nothing(steps: int) -> None:
    """The third of five calls is cancelled after so many turns of the event loop; after 12 it is done."""

    async def scenario() -> None:
        limiter = LimiterParts(limits(calls_in_flight=1, tokens_per_minute=10_000), rule=ANTHROPIC_CHARGING).build()

        async def call(admission: int) -> None:
            async with limiter.slot(admission=admission, estimate=SMALL) as slot:
                await asyncio.sleep(0)
                slot.sent()
                await asyncio.sleep(0)
                slot.answered(200, NOTHING)
                slot.settle(USAGE)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call(admission)) for admission in range(5)]
            for _ in range(steps):
                await asyncio.sleep(0)
            tasks[2].cancel()
        assert tasks[2].cancelled() == (steps < 12)
        await asyncio.sleep(3_600)
        state = limiter.state()
        assert (state.waiting, state.account.calls_in_flight, state.account.held) == (0, 0, 0)
        assert tokens_left(limiter) == 10_000

    run_in_virtual_time(scenario())


@in_virtual_time
async def test_replicas_that_share_one_account_back_off_without_a_coordinator() -> None:
    """Three workers, each configured with the whole limit: they learn of each other from the headers alone."""
    account = RateLimitedAccount(Charge.CAP_AT_ADMISSION, {Dimension.REQUESTS: 600, Dimension.TOKENS: 200_000})
    admissions = count()
    tried: list[bool] = []

    async def caller(limiter: Limiter) -> None:
        while now_ns() < 1_800 * SECOND_NS:
            async with limiter.slot(admission=next(admissions), estimate=Estimate(3_000, 500)) as slot:
                slot.sent()
                wait_s = account.arrive(now_ns(), 3_000, 500)
                headers = account.headers(now_ns())
                tried.append(wait_s is None)
                await asyncio.sleep(0.05 if wait_s else 2)
                if wait_s is None:
                    slot.answered(200, headers)
                    slot.settle(CompletionUsage(3_000, 200))
                else:
                    slot.answered(429, {**headers, "retry-after-ms": str(int(wait_s * 1_000) + 1)})

    async with asyncio.TaskGroup() as group:
        for replica in range(3):
            limiter = LimiterParts(limits(tokens_per_minute=200_000), jitter=random.Random(replica).random).build()
            for _ in range(10):
                group.create_task(caller(limiter))
    accepted_per_minute = sum(tried) / 30
    assert accepted_per_minute * 3_500 >= 0.9 * 200_000
    assert tried.count(False) <= 0.15 * len(tried)
