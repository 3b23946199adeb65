"""The fault matrix: every step of the line meets every fault, and every record has one outcome in the end, once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.guarantees.matrix.cells import SEEN, Ending, Fault, NoCell, Step, row
from tests.guarantees.matrix.meeting import meet
from tests.guarantees.matrix.oracle import assert_every_guarantee_holds, nothing_left_behind
from tests.guarantees.matrix.scene import let_go, set_up, watched_worker
from tests.support import lines
from tests.support.journals import EXPIRE
from worker.embedded.broker import Broker
from worker.embedded.llm_emulator.emulator import LlmEmulator

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

USED, WAIT, AGAIN, RECOMMIT = Ending.RETRIED, Ending.WAITED, Ending.REPEATED, Ending.RECOMMITTED
STOP, NEXT, DIED, UNLIVE = Ending.STOPPED, Ending.HANDED_ON, Ending.DIED, Ending.UNLIVE

PURE = NoCell("it computes, and depends on nothing that could be down or be lost")
SURE = NoCell("it computes the same from the same: it has no fault of the record's that another try would mend")
SYNC = NoCell("code that does not wait cannot be cancelled")
LOOK = NoCell("it looks and writes nothing: its COMMIT decides nothing")
MEMORY = NoCell("nothing leaves the process here")
NOBODYS = NoCell("it is no record's step: the adapter calls everything an outage, or fatal")
STORABLE = NoCell("what is on its way into the journal was made storable before")
FATAL = NoCell("a dead letter that cannot be stored is fatal, in the adapter: nothing is left to try")
IS_KILL = NoCell("no transaction: the same as being killed at it")

CUT_OFF = "SELECT count(*) FROM llm_calls WHERE outcome IN ('intent', 'unknown')"

# fmt: off  # a table is read by its columns
#                       own fault  outage  bug   hang    stop  kill  lost: before, after  killed: before, after COMMIT
MATRIX = {
    Step.DECODE: row(SURE, PURE, STOP, UNLIVE, SYNC, DIED, PURE, PURE, MEMORY, MEMORY),
    Step.FIND: row(NOBODYS, WAIT, STOP, WAIT, NEXT, DIED, AGAIN, LOOK, LOOK, LOOK),
    Step.JUDGE: row(USED, WAIT, STOP, USED, NEXT, DIED, PURE, PURE, MEMORY, MEMORY),
    Step.LOOK: row(NOBODYS, WAIT, STOP, WAIT, NEXT, DIED, AGAIN, LOOK, LOOK, LOOK),
    Step.INTENT: row(STORABLE, WAIT, STOP, WAIT, NEXT, DIED, AGAIN, AGAIN, DIED, DIED),
    Step.CALL: row(USED, WAIT, STOP, AGAIN, NEXT, DIED, AGAIN, AGAIN, IS_KILL, IS_KILL),
    Step.RESPONSE: row(STORABLE, WAIT, STOP, WAIT, NEXT, DIED, AGAIN, AGAIN, DIED, DIED),
    Step.USAGE: row(NOBODYS, WAIT, STOP, WAIT, NEXT, DIED, AGAIN, LOOK, LOOK, LOOK),
    Step.CREDIT: row(SURE, PURE, STOP, UNLIVE, SYNC, DIED, PURE, PURE, MEMORY, MEMORY),
    Step.ENCODE: row(SURE, PURE, STOP, UNLIVE, SYNC, DIED, PURE, PURE, MEMORY, MEMORY),
    Step.SAVE: row(USED, WAIT, STOP, WAIT, NEXT, DIED, AGAIN, AGAIN, DIED, DIED),
    Step.DEAD_LETTER: row(FATAL, WAIT, STOP, WAIT, NEXT, DIED, AGAIN, AGAIN, DIED, DIED),
    Step.CLAIM: row(NOBODYS, WAIT, STOP, WAIT, NEXT, DIED, WAIT, LOOK, LOOK, LOOK),
    Step.PUBLISH: row(NOBODYS, WAIT, STOP, WAIT, NEXT, DIED, WAIT, WAIT, IS_KILL, IS_KILL),
    Step.DELETE: row(NOBODYS, WAIT, STOP, WAIT, NEXT, DIED, WAIT, WAIT, DIED, DIED),
    Step.COMMIT: row(NOBODYS, RECOMMIT, STOP, RECOMMIT, NEXT, DIED, RECOMMIT, RECOMMIT, IS_KILL, IS_KILL),
}
# fmt: on

CELLS = [
    pytest.param(step, fault, ending, id=f"{step.value} / {fault.value}")
    for step, cells in MATRIX.items()
    for fault, ending in cells.items()
    if isinstance(ending, Ending)
]


def test_every_step_has_a_cell_or_a_reason_for_every_fault() -> None:
    assert {(step, fault) for step in MATRIX for fault in MATRIX[step]} == {
        (step, fault) for step in Step for fault in Fault
    }


@pytest.fixture
async def emulator(step: Step) -> AsyncIterator[LlmEmulator | None]:
    if not step.is_llm:
        yield None
        return
    async with LlmEmulator() as served:
        yield served


@pytest.mark.parametrize(("step", "fault", "ending"), CELLS)
async def test_a_step_that_meets_a_fault_ends_as_expected_and_every_record_has_one_outcome_once(
    kafka_broker: Broker,
    postgres_dsn: str,
    topics_prefix: str,
    emulator: LlmEmulator | None,
    step: Step,
    fault: Fault,
    ending: Ending,
) -> None:
    scene = await set_up(kafka_broker, postgres_dsn, topics_prefix, emulator)
    async with nothing_left_behind(postgres_dsn):
        did = await meet(scene, step, fault)
    assert did == SEEN[ending]
    calls_cut_off = 0
    if not did.finished:
        calls_cut_off = await lines.value(postgres_dsn, CUT_OFF)
        # Nobody waits here for the end of a dead worker's calls.
        await lines.rows(postgres_dsn, EXPIRE)
        async with nothing_left_behind(postgres_dsn), watched_worker(scene.part) as worker:
            await worker.run(asyncio.Event(), until_drained=True)
            await let_go(worker)
    await assert_every_guarantee_holds(scene, calls_cut_off_max=calls_cut_off)
