"""The group: its coordinator moves or answers with errors, its members come and go without rest."""

import asyncio
import random
from functools import partial

import pytest

from tests.guarantees.mock_cluster.answers_topic import PATIENCE_S, AnswersTopic
from tests.guarantees.mock_cluster.conftest import NODES, SEEDS, SettingsFor
from tests.integration.kafka.ledger import Ledger, Member, member_of
from tests.support.conditions import until
from tests.support.mock_kafka import Api, Code, MockKafka
from worker.errors import FatalError

PASSING_COORDINATION = [
    Code.CONNECTION_CLOSED,
    Code.UNKNOWN_SERVER_ERROR,
    Code.REQUEST_TIMED_OUT,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
]


@pytest.mark.parametrize("code", PASSING_COORDINATION, ids=lambda code: code.name)
async def test_a_heartbeat_that_fails_is_followed_by_others(
    cluster: MockKafka, answers: AnswersTopic, code: Code
) -> None:
    """One such answer ended aiokafka's heartbeats for good, with reading: the group forgot a worker that waited."""
    await answers.fill(10)
    cluster.fail(Api.HEARTBEAT, code, code)
    ledger = Ledger(seed=code)
    async with member_of(answers.settings, ledger) as member:
        await answers.asked(Api.HEARTBEAT, 4)
        await answers.fill(10)
        await answers.prove(ledger)

        assert member.consume.state().rebalances == 1


@pytest.mark.parametrize("code", [*PASSING_COORDINATION, Code.UNSTABLE_OFFSET_COMMIT], ids=lambda code: code.name)
async def test_committed_offsets_that_cannot_be_told_are_asked_for_again(
    cluster: MockKafka, answers: AnswersTopic, code: Code
) -> None:
    """One such answer ended aiokafka's look-up for good: nothing was read until the next rebalance."""
    await answers.fill(10)
    async with member_of(answers.settings, ledger := Ledger(seed=code)):
        await answers.prove(ledger)
    await answers.fill(10)
    cluster.fail(Api.OFFSET_FETCH, code, code)
    async with member_of(answers.settings, ledger) as member:
        await until(lambda: set(ledger.settled) == answers.records, PATIENCE_S)
        await answers.prove(ledger)

        assert member.consume.state().rebalances == 1
    assert set(ledger.settled.values()) == {1}


@pytest.mark.parametrize("api", [Api.FIND_COORDINATOR, Api.JOIN_GROUP, Api.SYNC_GROUP], ids=lambda api: api.name)
@pytest.mark.parametrize("code", [Code.UNKNOWN_SERVER_ERROR, Code.NOT_COORDINATOR], ids=lambda code: code.name)
async def test_a_group_that_cannot_be_joined_yet_is_tried_until_it_can(
    cluster: MockKafka, answers: AnswersTopic, api: Api, code: Code
) -> None:
    await answers.fill(10)
    cluster.fail(api, code, code)
    async with member_of(answers.settings, ledger := Ledger(seed=code)):
        await answers.prove(ledger)


@pytest.mark.parametrize(
    "api",
    [Api.FIND_COORDINATOR, Api.JOIN_GROUP, Api.SYNC_GROUP, Api.OFFSET_FETCH, Api.HEARTBEAT],
    ids=lambda api: api.name,
)
async def test_a_group_that_refuses_us_stops_the_worker(cluster: MockKafka, answers: AnswersTopic, api: Api) -> None:
    await answers.fill(10)
    cluster.fail(api, *[Code.GROUP_AUTHORIZATION_FAILED] * 3)
    with pytest.raises(FatalError, match="no access: GroupAuthorizationFailedError"):
        async with asyncio.timeout(PATIENCE_S):
            await Member(answers.settings, Ledger()).consume.run(asyncio.Event())


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_coordinator_that_moves_is_followed(cluster: MockKafka, answers: AnswersTopic, seed: int) -> None:
    """aiokafka#1151: a coordinator that was gone stayed in the cache."""
    moves = random.Random(seed)
    node = moves.randint(1, NODES)
    cluster.coordinate(answers.settings.group_id, node)
    ledger = Ledger(seed=seed)
    async with member_of(answers.settings, ledger) as member:
        for _ in range(4):
            await answers.fill(5)
            await answers.prove(ledger)
            node = moves.choice([other for other in range(1, NODES + 1) if other != node])
            cluster.coordinate(answers.settings.group_id, node)
            await answers.asked(Api.FIND_COORDINATOR, 1)
        await answers.fill(5)
        await answers.prove(ledger)

        assert member.consume.state().rebalances == 1
    assert set(ledger.settled.values()) == {1}


@pytest.mark.parametrize("seed", SEEDS[:1])
async def test_a_storm_of_rebalances_ends_with_every_record_settled_and_none_skipped(
    cluster: MockKafka, answers: AnswersTopic, seed: int
) -> None:
    """aiokafka#821, #933, #929: rejoining without end, and the same records again after their commit."""
    storm = random.Random(seed)
    former = storm.choice([Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION])
    told = [Code.REBALANCE_IN_PROGRESS, Code.REBALANCE_IN_PROGRESS, former]
    storm.shuffle(told)
    ledger = Ledger(seed=seed)
    await answers.fill(10)
    async with member_of(answers.settings, ledger) as member:
        for wave, code in enumerate(told, start=1):
            await until(partial(has_rebalanced, member, wave), PATIENCE_S)
            await answers.prove(ledger)
            cluster.fail(Api.HEARTBEAT, code)
            await answers.asked(Api.JOIN_GROUP, 1)
            await answers.fill(10)
        await answers.prove(ledger)

        assert member.consume.state().rebalances >= 3
    # What is committed when a rebalance begins is not delivered again by it.
    assert set(ledger.settled.values()) == {1}


async def test_what_is_settled_when_a_rebalance_begins_is_committed_within_it(
    cluster: MockKafka, settings_for: SettingsFor
) -> None:
    """aiokafka#1084, posthog#80897: a commit in the revoke had no effect, and finished work was done again."""
    answers = AnswersTopic(cluster, settings_for(commit_interval_ms=60_000), partitions=2)
    await answers.fill(20)
    async with member_of(answers.settings, ledger := Ledger()) as member:
        await until(lambda: set(ledger.settled) == answers.records, PATIENCE_S)
        assert await answers.committed() == [None, None]
        cluster.fail(Api.HEARTBEAT, Code.REBALANCE_IN_PROGRESS)
        await until(partial(has_rebalanced, member, 2), PATIENCE_S)

        await answers.prove(ledger)
    assert set(ledger.settled.values()) == {1}


def has_rebalanced(member: Member, times: int) -> bool:
    return member.consume.state().rebalances >= times


@pytest.mark.usefixtures("leaders_sync_last")
@pytest.mark.parametrize("seed", SEEDS)
async def test_members_that_come_and_go_without_rest_lose_and_skip_nothing(
    cluster: MockKafka, settings_for: SettingsFor, seed: int
) -> None:
    """parallel-consumer#826, zio-kafka#590, alpakka-kafka#755: lost, skipped or set back around rebalances."""
    answers = AnswersTopic(cluster, settings_for(session_timeout_ms=1_200), partitions=6)
    visits = random.Random(seed)
    ledger = Ledger(seed=seed, pause_max_s=0.05)
    await answers.fill(30)
    async with member_of(answers.settings, ledger) as resident:
        await until(lambda: resident.partitions, PATIENCE_S)
        for _ in range(3):
            async with member_of(answers.settings, ledger) as visitor:
                await until(partial(has_rebalanced, visitor, 1), PATIENCE_S)
                await answers.fill(visits.randint(1, 10))
                if visits.random() < 0.5:
                    await until(lambda: set(ledger.settled) == answers.records, PATIENCE_S)
        await answers.prove(ledger)
