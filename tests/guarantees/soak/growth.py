"""Whether samples of a process taken over time show something that grows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import linear_regression, median

SETTLED_SHARE = 1 / 3
"""Of a phase: warming up, when caches and pools fill; not looked at."""

RSS_GROWTH_BYTES_PER_HOUR_MAX = 16 * 2**20
RSS_GROWTH_SHARE_PER_HOUR_MAX = 0.10
"""Whichever allows more: what allocators do within a phase is not a leak."""

OPEN_FILES_MORE_MAX = 64
"""Than at rest before: the LLM's client keeps a connection for each call that may be in flight, and closes idle ones at
its next call."""

TASKS_MORE_MAX = 2
"""The same: a poll or a look in progress."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look. `at_s` since the start of the process; `connections_in_use` of the database pool."""

    at_s: float
    rss_bytes: int
    open_files: int
    tasks: int
    connections_in_use: int
    records_settled: int


@dataclass(frozen=True, slots=True)
class Phase:
    """What was sampled while one thing went on."""

    name: str
    samples: Sequence[Sample]

    @property
    def settled(self) -> Sequence[Sample]:
        return self.samples[int(len(self.samples) * SETTLED_SHARE) :]

    @property
    def rss_bytes_per_hour(self) -> float:
        """Slope of a straight line through the samples, warm-up left out."""
        samples = self.settled
        slope, _ = linear_regression([sample.at_s for sample in samples], [sample.rss_bytes for sample in samples])
        return slope * 3_600


def findings(before: Phase, loaded: Phase, after: Phase) -> Iterator[str]:
    """What a worker holds that it should not, each in a line."""
    for phase in (before, loaded, after):
        allowed = max(
            RSS_GROWTH_BYTES_PER_HOUR_MAX,
            RSS_GROWTH_SHARE_PER_HOUR_MAX * median(sample.rss_bytes for sample in phase.settled),
        )
        if phase.rss_bytes_per_hour > allowed:
            yield f"{phase.name}: RSS grows by {phase.rss_bytes_per_hour / 2**20:.1f} MiB an hour"
    for what, allowed_more in (("open_files", OPEN_FILES_MORE_MAX), ("tasks", TASKS_MORE_MAX)):
        at_rest, later = (median(getattr(sample, what) for sample in phase.settled) for phase in (before, after))
        if later > at_rest + allowed_more:
            yield f"{what}: {at_rest:g} at rest before the work, {later:g} after it"
    in_use = min(sample.connections_in_use for sample in after.settled)
    if in_use:
        yield f"connections_in_use: never below {in_use} at rest"
    if loaded.samples[-1].records_settled <= loaded.samples[0].records_settled:
        yield "nothing was settled under load, which shows nothing"
