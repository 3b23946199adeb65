"""Every answer to a commit: those after which it is repeated, and those after which the worker stops."""

import asyncio

import pytest

from tests.guarantees.mock_cluster.answers_topic import PATIENCE_S, AnswersTopic, HeldLedger
from tests.guarantees.mock_cluster.conftest import SettingsFor
from tests.integration.kafka.ledger import Ledger, Member, member_of
from tests.support.conditions import until
from tests.support.mock_kafka import Api, Code, MockKafka
from worker.errors import FatalError

REPEATED = [
    Code.CONNECTION_CLOSED,
    Code.UNKNOWN_SERVER_ERROR,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.REQUEST_TIMED_OUT,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
    Code.NOT_ENOUGH_REPLICAS,
    Code.KAFKA_STORAGE_ERROR,
    # aiokafka does not know this code, and cannot tell it from an error of the server.
    Code.FENCED_INSTANCE_ID,
]
REJOINED = [Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID, Code.REBALANCE_IN_PROGRESS]
STOPPED = {
    Code.GROUP_AUTHORIZATION_FAILED: "no access: GroupAuthorizationFailedError",
    Code.TOPIC_AUTHORIZATION_FAILED: "no access: TopicAuthorizationFailedError",
    Code.CLUSTER_AUTHORIZATION_FAILED: "no access: ClusterAuthorizationFailedError",
    Code.INVALID_GROUP_ID: "refused for good: InvalidGroupIdError",
    Code.OFFSET_METADATA_TOO_LARGE: "refused for good: OffsetMetadataTooLargeError",
    Code.INVALID_COMMIT_OFFSET_SIZE: "refused for good: InvalidCommitOffsetSizeError",
}


@pytest.mark.parametrize("code", REPEATED, ids=lambda code: code.name)
async def test_a_commit_that_fails_is_repeated_and_nobody_rejoins(
    cluster: MockKafka, answers: AnswersTopic, code: Code
) -> None:
    """aiokafka#929: a commit that failed after the work was done ended the worker."""
    await answers.fill(20)
    cluster.fail(Api.OFFSET_COMMIT, code, code)
    ledger = Ledger(seed=code)
    async with member_of(answers.settings, ledger) as member:
        await answers.asked(Api.OFFSET_COMMIT, 3)
        await answers.fill(20)
        await answers.prove(ledger)

        assert member.consume.state().rebalances == 1
    assert set(ledger.settled.values()) == {1}


@pytest.mark.parametrize("code", REJOINED, ids=lambda code: code.name)
async def test_a_commit_of_a_former_member_is_let_go_and_the_group_joined_again(
    cluster: MockKafka, answers: AnswersTopic, code: Code
) -> None:
    """aiokafka#929, #828, #1084, faust#94: a commit beside a rebalance, or within one, killed the consumer."""
    await answers.fill(20)
    # The second one falls to the commit of the revoke, which the first one brings about.
    cluster.fail(Api.OFFSET_COMMIT, code, code)
    ledger = Ledger(seed=code)
    async with member_of(answers.settings, ledger) as member:
        await until(lambda: member.consume.state().rebalances > 1, PATIENCE_S)
        await answers.fill(20)
        await answers.prove(ledger)

        assert member.consume.state().commits_failed >= 1


@pytest.mark.parametrize("code", STOPPED, ids=lambda code: code.name)
async def test_a_commit_that_is_refused_for_good_stops_the_worker_and_loses_nothing(
    cluster: MockKafka, answers: AnswersTopic, code: Code
) -> None:
    await answers.fill(20)
    cluster.fail(Api.OFFSET_COMMIT, *[code] * 5)
    ledger = Ledger(seed=code)
    with pytest.raises(FatalError, match=f"committing offsets of answers: {STOPPED[code]}"):
        async with asyncio.timeout(PATIENCE_S):
            await Member(answers.settings, ledger).consume.run(asyncio.Event())
    assert await answers.committed() == [None, None]
    cluster.heal(Api.OFFSET_COMMIT)

    async with member_of(answers.settings, ledger):
        await answers.prove(ledger)


async def test_while_commits_fail_nothing_passes_the_head_of_a_partition(
    cluster: MockKafka, answers: AnswersTopic
) -> None:
    """faust#312: with the head of the queue missing, an offset too high was committed."""
    await answers.fill(20)
    cluster.fail(Api.OFFSET_COMMIT, *[Code.UNKNOWN_SERVER_ERROR, Code.REQUEST_TIMED_OUT] * 3)
    ledger = HeldLedger((0, 3))
    async with member_of(answers.settings, ledger) as member:
        await until(lambda: len(ledger.settled) == 39, PATIENCE_S)
        await until(lambda: not member.consume._offsets.committable(), PATIENCE_S)

        assert await answers.committed() == [3, 20]
        ledger.let_go.set()
        await answers.prove(ledger)


async def test_a_commit_that_is_answered_too_late_is_given_up_and_repeated(
    cluster: MockKafka, settings_for: SettingsFor
) -> None:
    """aiokafka's commit has no deadline of its own; decaton#19: time-outs inside the loop."""
    settings = settings_for(commit_timeout_ms=100)
    answers = AnswersTopic(cluster, settings, partitions=2)
    await answers.fill(20)
    for node in (1, 2, 3):
        cluster.answer(node, Api.OFFSET_COMMIT, [(Code.NONE, 400)])
    ledger = Ledger()
    async with member_of(settings, ledger) as member:
        await until(lambda: member.consume.state().commits_failed, PATIENCE_S)
        await answers.fill(20)
        await answers.prove(ledger)

        assert member.consume.state().rebalances == 1
    assert set(ledger.settled.values()) == {1}
