"""The whole worker with a judge that costs nothing: its speed, its memory, and what it adds to a record's latency."""

import argparse
from collections.abc import Mapping, Sequence
from statistics import median

from rich.console import Console

from tests.benchmarks.__main__ import table_of
from tests.benchmarks.figure import Figure
from tests.benchmarks.line_events import FULL_SIZE, SMALL
from tests.benchmarks.line_services import Services, services
from tests.benchmarks.line_task import Result, Task

ROUNDS = 3
SPEED_EVENTS = 8_000
SPEED_GOAL = 0.6

LATENCY_EVENTS = 6_000
WARM_UP_EVENTS = 500
COMMITS = 500
IN_FLIGHT = 100
JUDGE_S = 0.2

MEMORY_EVENTS = 200_000
MEMORY_GOAL = 0.1

Runs = Mapping[str, Sequence[Result]]


def run(*, rounds: int = ROUNDS, memory_events: int = MEMORY_EVENTS) -> list[Figure]:
    """Some ten minutes on two cores, a third of them for the memory's 200,000 events."""
    with services() as running:
        return [
            *speed_figures(running, rounds),
            *latency_figures(running),
            memory_figure(running, memory_events),
        ]


def speed_figures(running: Services, rounds: int) -> list[Figure]:
    """The line and the bare loop in turn, and once more the line with a profile of it."""
    kafka = running.fill(FULL_SIZE, SPEED_EVENTS)
    tasks = {
        "line": Task("line", SPEED_EVENTS),
        "bare": Task("bare", SPEED_EVENTS),
        "nothing published": Task("line", SPEED_EVENTS, relayed=False),
    }
    runs: dict[str, list[Result]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            runs[name].append(running.measure(task, kafka))
    profiled = running.measure(Task("line", SPEED_EVENTS, profiled=True), kafka)
    return [*throughput_figures(runs), *step_figures(profiled)]


def throughput_figures(runs: Runs) -> list[Figure]:
    """Ratios of neighbours in time, then their median: a shared machine changes its pace from minute to minute."""
    rates = {
        "settled": [result.events_per_s for result in runs["line"]],
        "settled and published": [result.events / result.published_s for result in runs["line"]],
        "settled, nothing published": [result.events_per_s for result in runs["nothing published"]],
    }
    bare = [result.events_per_s for result in runs["bare"]]
    figures = []
    for name, measured in rates.items():
        ratio = median(line / beside for line, beside in zip(measured, bare, strict=True))
        wanted = name == "settled"
        figures.append(
            Figure(
                name,
                f"{median(measured):.0f} events/s",
                f"{median(bare):.0f} events/s, the bare loop",
                ratio,
                f"≥ {SPEED_GOAL:g} ×" if wanted else "",
                ratio >= SPEED_GOAL if wanted else None,
            )
        )
    return [*figures, processor_figure(runs)]


def processor_figure(runs: Runs) -> Figure:
    line, bare = ([result.cpu_us for result in runs[name]] for name in ("line", "bare"))
    ratio = median(a / b for a, b in zip(line, bare, strict=True))
    beside = f"{median(bare):.0f} µs, the bare loop"
    return Figure("processor time of one event", f"{median(line):.0f} µs", beside, ratio, "", None)


def step_figures(profiled: Result) -> list[Figure]:
    """Processor time of one process and one event, by step, garbage collection within."""
    total = sum(profiled.samples.values())
    beside = f"{profiled.cpu_us:.0f} µs, the whole line"
    by_share = sorted(profiled.samples.items(), key=lambda item: -item[1])
    return [
        Figure(
            f"processor time: {step}", f"{profiled.cpu_us * samples / total:.0f} µs", beside, samples / total, "", None
        )
        for step, samples in by_share
    ]


def latency_figures(running: Services) -> list[Figure]:
    """What the worker adds to a record's way from the poll to durable rows, with many records in the judge."""
    kafka = running.fill(FULL_SIZE, LATENCY_EVENTS)
    in_flight = {"intake": {"records_max": IN_FLIGHT}}
    line = running.measure(Task("line", LATENCY_EVENTS, overrides=in_flight, judge_s=JUDGE_S), kafka)
    alone = running.measure(Task("commits", COMMITS), kafka)
    added_s, commits_s = line.latencies_s[WARM_UP_EVENTS:], alone.latencies_s
    name = f"added latency, {IN_FLIGHT} in flight, judge {JUDGE_S * 1e3:.0f} ms"
    return [
        Figure(
            f"{name}: p{percent}",
            f"{percentile(added_s, percent) * 1e3:.1f} ms",
            f"{percentile(commits_s, percent) * 1e3:.1f} ms, one event's rows committed alone",
            percentile(added_s, percent) / percentile(commits_s, percent),
            "",
            None,
        )
        for percent in (50, 99)
    ]


def percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[len(values) * percent // 100]


def memory_figure(running: Services, events: int) -> Figure:
    """The most it ever holds after the first tenth: at the very end nothing is fetched ahead any more."""
    kafka = running.fill(SMALL, events)
    held = running.measure(Task("line", events, shape=SMALL), kafka).memory_bytes
    early, later = held[: len(held) // 10], held[len(held) // 10 :]
    growth = max(later) / early[-1]
    return Figure(
        f"resident memory over {events:,} small events",
        f"at most {max(later) / 2**20:.0f} MiB, {later[-1] / 2**20:.0f} MiB at the end",
        f"{early[-1] / 2**20:.0f} MiB after a tenth of them",
        growth,
        f"≤ {1 + MEMORY_GOAL:g} ×",
        growth <= 1 + MEMORY_GOAL,
    )


def main() -> None:
    """For quick looks: fewer rounds, fewer events."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--memory-events", type=int, default=MEMORY_EVENTS)
    arguments = parser.parse_args()
    Console().print(table_of(__name__, run(rounds=arguments.rounds, memory_events=arguments.memory_events)))


if __name__ == "__main__":
    main()
