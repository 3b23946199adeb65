"""A check that cannot fail checks nothing: each way to be wrong is found, by the guarantee that it breaks."""

from collections.abc import Iterator

import pytest

from tests.guarantees.simulation.mutations import MUTATIONS
from tests.guarantees.simulation.pool import Simulations, open_simulations

SEEDS_MAX = 400
SEEDS_AT_ONCE = 8

# A busy machine makes a few seeds a second.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def simulations() -> Iterator[Simulations]:
    with open_simulations() as pool:
        yield pool


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_simulation_finds(simulations: Simulations, name: str) -> None:
    wanted = MUTATIONS[name].breaks
    found = set()
    for start in range(0, SEEDS_MAX, SEEDS_AT_ONCE):
        for report in simulations.run(range(start, start + SEEDS_AT_ONCE), name):
            found |= {guarantee for guarantee, _ in report.violations}
        if found & wanted:
            return
    raise AssertionError(f"{SEEDS_MAX} schedules broke {sorted(found)}, and never {sorted(wanted)}")
