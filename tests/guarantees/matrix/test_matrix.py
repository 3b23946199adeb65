"""The fault matrix: every step of the line meets every fault, and every record has one outcome in the end, once.

On Apache Kafka and PostgreSQL, by the worker as it is wired; whoever is killed is a process. The matrix in words, a
line a cell: `python -m tests.guarantees.matrix`.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping

import pytest

from tests.guarantees.matrix.cells import SEEN, Ending, Fault, NoCell, Step, row
from tests.guarantees.matrix.meeting import meet, proxy_for
from tests.guarantees.matrix.oracle import assert_every_guarantee_holds, nothing_left_behind
from tests.guarantees.matrix.scene import Scene, finish, make_topics, set_up, watched_worker
from worker.core.outcome import Outcome
from worker.embedded.broker import Broker
from worker.embedded.llm_emulator.emulator import LlmEmulator

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

USED, WAIT, AGAIN, RECOM = Ending.RETRIED, Ending.WAITED, Ending.REPEATED, Ending.RECOMMITTED
STOP, NEXT, DIED, UNLIVE = Ending.STOPPED, Ending.HANDED_ON, Ending.DIED, Ending.UNLIVE

PURE__ = NoCell("it computes here, and depends on nothing that could be down or be lost")
SURE__ = NoCell("it computes the same from the same: it has no fault that another try would mend")
SYNC__ = NoCell("code that does not wait cannot be cancelled")
LOOK__ = NoCell("it looks and writes nothing: its COMMIT decides nothing")
ADAPT_ = NoCell("its adapter calls everything an outage, or fatal: it has no fault that is a record's own")
STORED = NoCell("what goes into the journal was made storable before")
FATAL_ = NoCell("the adapter makes it fatal, which ends as a bug does: nothing less than a dead letter is left to try")
KILL__ = NoCell("no transaction of ours: the same as killed at it")
BEFORE = NoCell("killed before its COMMIT is the same, and later")
DECODE = NoCell("the loop stands still as in decode")

# fmt: off
# A table is read by its columns.
#                     own      outage bug   never   stopped kill    connection lost  killed
#                     fault                 returns in it   at it   before,  after   before, after COMMIT
MATRIX = {
    Step.DECODE:      row(SURE__, PURE__, STOP, UNLIVE, SYNC__, DIED,   PURE__, PURE__, KILL__, KILL__),
    Step.FIND:        row(ADAPT_, WAIT,   STOP, WAIT,   NEXT,   DIED,   AGAIN,  LOOK__, LOOK__, LOOK__),
    Step.JUDGE:       row(USED,   WAIT,   STOP, USED,   NEXT,   DIED,   PURE__, PURE__, KILL__, KILL__),
    Step.LOOK:        row(ADAPT_, WAIT,   STOP, WAIT,   NEXT,   DIED,   AGAIN,  LOOK__, LOOK__, LOOK__),
    Step.INTENT:      row(STORED, WAIT,   STOP, WAIT,   NEXT,   BEFORE, AGAIN,  AGAIN,  DIED,   DIED),
    Step.CALL:        row(USED,   WAIT,   STOP, AGAIN,  NEXT,   DIED,   AGAIN,  AGAIN,  KILL__, KILL__),
    Step.RESPONSE:    row(STORED, WAIT,   STOP, WAIT,   NEXT,   BEFORE, AGAIN,  AGAIN,  DIED,   DIED),
    Step.USAGE:       row(ADAPT_, WAIT,   STOP, WAIT,   NEXT,   DIED,   AGAIN,  LOOK__, LOOK__, LOOK__),
    Step.CREDIT:      row(SURE__, PURE__, STOP, DECODE, SYNC__, DIED,   PURE__, PURE__, KILL__, KILL__),
    Step.ENCODE:      row(SURE__, PURE__, STOP, DECODE, SYNC__, DIED,   PURE__, PURE__, KILL__, KILL__),
    Step.SAVE:        row(USED,   WAIT,   STOP, WAIT,   NEXT,   BEFORE, AGAIN,  AGAIN,  DIED,   DIED),
    Step.DEAD_LETTER: row(FATAL_, WAIT,   STOP, WAIT,   NEXT,   BEFORE, AGAIN,  AGAIN,  DIED,   DIED),
    Step.CLAIM:       row(ADAPT_, WAIT,   STOP, WAIT,   NEXT,   DIED,   WAIT,   LOOK__, LOOK__, LOOK__),
    Step.PUBLISH:     row(ADAPT_, WAIT,   STOP, WAIT,   NEXT,   DIED,   WAIT,   WAIT,   KILL__, KILL__),
    Step.DELETE:      row(ADAPT_, WAIT,   STOP, WAIT,   NEXT,   BEFORE, WAIT,   WAIT,   DIED,   DIED),
    Step.COMMIT:      row(ADAPT_, RECOM,  STOP, RECOM,  NEXT,   DIED,   RECOM,  RECOM,  KILL__, KILL__),
}
# fmt: on

CELLS = {
    f"{step.value} / {fault.value}": (step, fault, ending)
    for step, cells in MATRIX.items()
    for fault, ending in cells.items()
    if isinstance(ending, Ending)
}


def test_every_step_has_an_ending_or_a_reason_for_every_fault() -> None:
    assert list(MATRIX) == list(Step)
    assert all(list(cells) == list(Fault) for cells in MATRIX.values())


@pytest.fixture(scope="module")
def prefixes(request: pytest.FixtureRequest, kafka_broker: Broker) -> Mapping[str, str]:
    """Of the topics that are there for each test that was selected."""
    mine = [item.name for item in request.session.items if item.path == request.path]
    prefixes = {name: f"matrix-{uuid.uuid4().hex[:8]}" for name in mine}
    asyncio.run(make_topics(kafka_broker, prefixes.values()))
    return prefixes


@pytest.fixture
async def emulator(request: pytest.FixtureRequest) -> AsyncIterator[LlmEmulator | None]:
    cell = request.node.callspec.params.get("cell") if hasattr(request.node, "callspec") else None
    if cell is None or not CELLS[cell][0].is_llm:
        yield None
        return
    async with LlmEmulator() as served:
        yield served


@pytest.fixture
async def scene(
    request: pytest.FixtureRequest,
    kafka_broker: Broker,
    postgres_dsn: str,
    prefixes: Mapping[str, str],
    emulator: LlmEmulator | None,
) -> Scene:
    return await set_up(kafka_broker, postgres_dsn, prefixes[request.node.name], emulator)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of aiokafka's connections: see the oracle
@pytest.mark.parametrize("cell", CELLS)
async def test_a_step_that_meets_a_fault_ends_as_told_and_every_record_has_one_outcome_once(
    scene: Scene, cell: str
) -> None:
    step, fault, ending = CELLS[cell]
    calls_cut_off = 0
    async with nothing_left_behind(scene.part.dsn):
        did = await meet(scene, step, fault)
        assert did == SEEN[ending]
        if not did.finished:
            calls_cut_off = await finish(scene)
    await assert_every_guarantee_holds(scene, calls_cut_off_max=calls_cut_off)


async def test_after_a_commit_of_unknown_outcome_the_key_row_is_read_before_anything_is_done_again(
    scene: Scene,
) -> None:
    """asyncpg#309, litellm#29292: what was stored is found, and neither judged nor stored a second time."""
    async with proxy_for(scene.part.dsn, Step.SAVE, Fault.LOST_AFTER) as proxy:
        through = scene.part.but(postgres={"dsn": proxy.dsn})
        async with nothing_left_behind(scene.part.dsn), watched_worker(through) as worker:
            judged: list[object] = []
            judge_answer = worker.consume._settle._process._judge  # type: ignore[attr-defined]  # of Settle
            judge = judge_answer._judge.judge

            async def counted(answer: object) -> object:
                judged.append(answer)
                return await judge(answer)

            judge_answer._judge.judge = counted
            await worker.run(asyncio.Event(), until_drained=True)
            assert proxy.cuts == 1
            assert worker.store.database.retries.total() == 1
            assert worker.telemetry.outcomes[Outcome.DUPLICATE] > 0, "found by its key"
            assert len(judged) == len(scene.part.answer_ids) - 1
    await assert_every_guarantee_holds(scene, calls_cut_off_max=0)
