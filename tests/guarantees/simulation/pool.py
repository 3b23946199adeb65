"""Schedules on every core, in processes that log nothing."""

import gc
import logging
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import structlog

from tests.guarantees.simulation.mutations import MUTATIONS
from tests.guarantees.simulation.simulation import Report, simulate

GARBAGE_OBJECTS = 100_000
"""Between two looks for garbage: a run makes a few of that, and its end frees most of them."""

CHUNK = 4


class Simulations:
    """A pool of processes that simulate."""

    def __init__(self, pool: "multiprocessing.pool.Pool") -> None:
        self._pool = pool

    def run(self, seeds: Iterable[int], mutation: str | None = None) -> Iterator[Report]:
        """In no order."""
        return self._pool.imap_unordered(partial(simulated, mutation=mutation), seeds, chunksize=CHUNK)


@contextmanager
def open_simulations() -> Iterator[Simulations]:
    # Spawned, not forked: each has its own hash seed, and what a test before set up is not in it.
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), initializer=prepare) as pool:
        yield Simulations(pool)


def prepare() -> None:
    """Thousands of simulated outages would each be logged."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    gc.set_threshold(GARBAGE_OBJECTS)


def simulated(seed: int, mutation: str | None) -> Report:
    return simulate(seed, None if mutation is None else MUTATIONS[mutation].break_worker)
