"""Seeded schedules of whole workers: whatever happens to them, nothing that was promised is broken.

`SOAK_SCHEDULES=20000` runs more of them. `SIMULATION_SEED=123` runs this one alone, and shows all that happens in it.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from tests.guarantees.simulation.pool import Simulations, open_simulations, prepare, simulated
from tests.guarantees.simulation.schedule import Trouble
from tests.guarantees.simulation.simulation import Report
from tests.guarantees.simulation.world import Guarantee

SCHEDULES = int(os.environ.get("SOAK_SCHEDULES", "2000"))  # noqa: TID251  # of the run, not of the worker
SEED = os.environ.get("SIMULATION_SEED")  # noqa: TID251  # the same
SEEDS = range(SCHEDULES) if SEED is None else range(int(SEED), int(SEED) + 1)
REPLAY = "SIMULATION_SEED={seed} .venv/bin/python -m pytest tests/guarantees/simulation/test_simulation.py"
TOLD_MAX = 3
ENOUGH = 1_000
"""So many schedules meet everything; a replayed seed, or a short run, need not."""

LINES_MAX = 200

SOMETIMES = {
    "call.closed_late",
    "call.timed_out",
    "commit.fenced",
    "group.expired",
    "provider.throttled",
    "provider.unheard",
    "record.redelivered",
    "reply.lost",
    "request.died_with_its_process",
    "request.lost",
    "save.conflict",
    "save.duplicate",
    "save.saved",
    "save.set_aside",
    "set_aside.attempts_exhausted",
    "set_aside.budget_exhausted",
    "set_aside.conflicting_content",
    "set_aside.judge_incomplete",
    "set_aside.judge_refused",
    "set_aside.too_late",
    "worker.woken",
}
"""What must have happened somewhere, else the runs do not try what they are here to try."""

# A schedule takes a tenth of a second of one core; a soak runs as long as it takes.
pytestmark = pytest.mark.timeout(120 + SCHEDULES)


@pytest.fixture(scope="module")
def simulations() -> Iterator[Simulations]:
    with open_simulations() as pool:
        yield pool


@pytest.fixture(scope="module")
def reports(simulations: Simulations) -> Sequence[Report]:
    return list(simulations.run(SEEDS))


@pytest.mark.parametrize("guarantee", list(Guarantee), ids=lambda guarantee: guarantee.name.lower())
def test_no_schedule_breaks_a_guarantee(reports: Sequence[Report], guarantee: Guarantee) -> None:
    broken = sorted(
        (report for report in reports if any(broken is guarantee for broken, _ in report.violations)),
        key=lambda report: len(report.trace),
    )
    assert not broken, _told(broken)


def test_the_schedules_meet_every_trouble_and_what_comes_of_it(reports: Sequence[Report]) -> None:
    seen: Counter[str] = Counter()
    for report in reports:
        seen.update(report.seen)
    wanted = SOMETIMES | {f"trouble.{trouble.name}" for trouble in Trouble}
    assert len(reports) < ENOUGH or {event for event in wanted if not seen[event]} == set()


def test_a_schedule_runs_the_same_every_time_and_in_every_process(simulations: Simulations) -> None:
    """Its other process has another seed for hashes, so that no order of a set decides anything."""
    seeds = range(8)
    elsewhere = {report.seed: report.digest for report in simulations.run(seeds)}
    prepare()
    assert {seed: simulated(seed, None).digest for seed in seeds} == elsewhere
    assert len(set(elsewhere.values())) == len(seeds)


def _told(broken: Sequence[Report]) -> str:
    seeds = sorted(report.seed for report in broken)
    shown = "\n".join(str(report) for report in broken[:TOLD_MAX]).splitlines()
    cut = shown if SEED is not None else shown[:LINES_MAX]
    return "\n".join([f"seeds {seeds}; replay one by", *(REPLAY.format(seed=seed) for seed in seeds[:TOLD_MAX]), *cut])
