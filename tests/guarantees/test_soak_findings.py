"""What `make soak` would find: each kind of growth, and none where there is none."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.guarantees.soak.growth import Phase, Sample, findings

MIB = 2**20
Change = Callable[[Sample], Sample]


def samples(start_s: float, *, working: bool = False) -> Sequence[Sample]:
    """Half an hour, with the noise that a process has."""
    return [
        Sample(
            at_s=start_s + 2 * number,
            rss_bytes=150 * MIB + (number % 7) * 40_000,
            open_files=40 + number % 2,
            tasks=12 + (50 if working else number % 2),
            connections_in_use=number % 3 if working else number % 2,
            records_settled=number * 40 if working else 0,
        )
        for number in range(900)
    ]


BEFORE, LOADED, AFTER = (
    Phase("rest", samples(0)),
    Phase("work", samples(1_800, working=True)),
    Phase("end", samples(3_600)),
)


def changed(phase: Phase, change: Change) -> Phase:
    return replace(phase, samples=[change(sample) for sample in phase.samples])


def test_a_steady_worker_has_nothing_found() -> None:
    assert list(findings(BEFORE, LOADED, AFTER)) == []


def test_memory_that_a_warm_up_takes_is_no_leak() -> None:
    warming = changed(LOADED, lambda s: replace(s, rss_bytes=s.rss_bytes + int(min(60, (s.at_s - 1_800) / 8) * MIB)))
    assert list(findings(BEFORE, warming, AFTER)) == []


@pytest.mark.parametrize(
    ("phase", "change", "told"),
    [
        (0, lambda s: replace(s, rss_bytes=s.rss_bytes + int(s.at_s * 10_000)), "rest: RSS grows"),
        (1, lambda s: replace(s, rss_bytes=s.rss_bytes + int(s.at_s * 10_000)), "work: RSS grows"),
        (2, lambda s: replace(s, open_files=s.open_files + 70), "open_files"),
        (2, lambda s: replace(s, tasks=s.tasks + 5), "tasks"),
        (2, lambda s: replace(s, connections_in_use=s.connections_in_use + 1), "connections_in_use"),
        (1, lambda s: replace(s, records_settled=0), "nothing was settled"),
    ],
)
def test_whatever_grows_is_found(phase: int, change: Change, told: str) -> None:
    phases = [BEFORE, LOADED, AFTER]
    phases[phase] = changed(phases[phase], change)
    (found,) = findings(*phases)
    assert told in found
