"""Everything about one run that is decided before it starts, from a seed."""

import random
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto

from tests.guarantees.simulation.corpus import EVENT_BYTES_MAX, Produced, records_of
from worker.core.budget import Limits
from worker.core.charging import ANTHROPIC_CHARGING, OPENAI_CHARGING, ChargingRule
from worker.settings import (
    DeadLetterSettings,
    IntakeSettings,
    KafkaSettings,
    LimiterSettings,
    LlmSettings,
    OutboxSettings,
    SettleSettings,
)

KAFKA = KafkaSettings(
    session_timeout_ms=10_000,
    heartbeat_interval_ms=1_000,
    rebalance_timeout_ms=20_000,
    max_poll_interval_ms=60_000,
    poll_timeout_ms=8_000,
    outage_backoff_ms=700,
    rebalance_drain_ms=4_000,
    commit_interval_ms=1_500,
    commit_timeout_ms=3_000,
)
SETTLE = SettleSettings(attempts_max=2, backoff_base_s=0.2, backoff_max_s=5, outage_backoff_max_s=3)
LLM = LlmSettings(call_timeout_s=12, recording_s=5, transient_failures_max=2, token_margin=1)
OUTBOX = OutboxSettings(batch_max=5, poll_interval_ms=8_000, publish_timeout_s=5)
DEAD_LETTERS = DeadLetterSettings(consecutive_max=10**6, ratio_max=1)
DRAIN_S = 4.0
WORKERS_MAX = 4
BURST_S = 50.0
EVENTS_MIN, EVENTS_MAX = 40, 600
"""Lines of the trace within which a disturbance that waits for a line strikes."""


class Trouble(Enum):
    """What is done to a run while it runs."""

    KILL = auto()  # SIGKILL, and started again
    STOP = auto()  # SIGTERM, and started again
    SCALE_OUT = auto()
    FREEZE = auto()  # SIGSTOP, SIGCONT; past its session or not
    LOSE_SESSION = auto()  # the group gives up a member that works on
    REBALANCE = auto()
    BROKER_DOWN = auto()
    COMMITS_FAIL = auto()
    DATABASE_DOWN = auto()
    PROVIDER_DOWN = auto()
    KILL_ALL = auto()


WEIGHTS = {
    Trouble.KILL: 6,
    Trouble.STOP: 3,
    Trouble.SCALE_OUT: 1,
    Trouble.FREEZE: 4,
    Trouble.LOSE_SESSION: 3,
    Trouble.REBALANCE: 3,
    Trouble.BROKER_DOWN: 2,
    Trouble.COMMITS_FAIL: 2,
    Trouble.DATABASE_DOWN: 3,
    Trouble.PROVIDER_DOWN: 2,
    Trouble.KILL_ALL: 1,
}


@dataclass(frozen=True)
class Disturbance:
    """At a time, or when the trace has so many lines: next to whatever happened just then."""

    trouble: Trouble
    at_s: float | None
    at_event: int
    lasts_s: float
    target: int


@dataclass(frozen=True)
class ModelFaults:
    """Shares of calls."""

    spoiled: float = 0.0
    truncated: float = 0.0
    failing: float = 0.0
    throttled: float = 0.0
    reset: float = 0.0
    unheard: float = 0.0
    """Served and billed, and the response is lost or comes too late."""


CLEAN = ModelFaults()
LIGHT = ModelFaults(spoiled=0.03, truncated=0.02, failing=0.04, throttled=0.04, reset=0.03, unheard=0.03)
HEAVY = ModelFaults(spoiled=0.12, truncated=0.05, failing=0.12, throttled=0.08, reset=0.08, unheard=0.1)


@dataclass(frozen=True)
class Schedule:
    partitions: int
    workers: int
    records: tuple[Produced, ...]
    disturbances: tuple[Disturbance, ...]
    shuffled: bool
    copies_judgements: bool
    model_faults: ModelFaults
    kafka_loses: float
    database_loses: float
    rule: ChargingRule
    budgets: Limits
    intake: IntakeSettings
    limiter: LimiterSettings

    @property
    def is_fair(self) -> bool:
        """Nothing but its own content can make a record a dead letter."""
        return self.model_faults == CLEAN and not self.budgets.any_set


def schedule_of(rng: random.Random) -> Schedule:
    partitions = rng.randint(3, 4)
    return Schedule(
        partitions=partitions,
        workers=rng.randint(2, 3),
        records=records_of(rng, partitions),
        disturbances=tuple(_disturbance(rng) for _ in range(rng.randint(5, 15))),
        shuffled=rng.random() < 0.5,
        copies_judgements=rng.random() < 0.5,
        model_faults=rng.choice((CLEAN, LIGHT, HEAVY)),
        kafka_loses=rng.choice((0.0, 0.01, 0.05)),
        database_loses=rng.choice((0.0, 0.01, 0.05)),
        rule=rng.choice((OPENAI_CHARGING, ANTHROPIC_CHARGING)),
        budgets=_budgets(rng),
        intake=IntakeSettings(
            records_max=rng.choice((2, 5, 20)),
            bytes_max=rng.choice((3_000, 10**6)),
            event_bytes_max=EVENT_BYTES_MAX,
            outage_probe_s=10,
        ),
        limiter=_limiter(rng),
    )


def _disturbance(rng: random.Random) -> Disturbance:
    trouble = rng.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))[0]
    at_s = rng.random() * 70 if rng.random() < 0.4 else None
    lasts_s = rng.choice((0.1, 2.0, 8.0, 25.0, 120.0)) * rng.random()
    at_event = rng.randint(EVENTS_MIN, EVENTS_MAX)
    return Disturbance(trouble, at_s, at_event, lasts_s, target=rng.randrange(WORKERS_MAX))


def _budgets(rng: random.Random) -> Limits:
    """Mostly none; else one that is spent in mid-run: of all tenants, for which everyone waits, or of each."""
    kind = rng.random()
    if kind < 0.8:
        return Limits()
    spent = Decimal(rng.choice((8, 16))) / 1_000
    return Limits(total_usd_per_hour=4 * spent) if kind < 0.81 else Limits(tenant_usd_per_hour=spent)


def _limiter(rng: random.Random) -> LimiterSettings:
    return LimiterSettings(
        requests_per_minute=rng.choice((5, 60, 600)),
        tokens_per_minute=rng.choice((10_000, 40_000, None)),
        calls_in_flight=rng.choice((1, 4, 64)),
        learn_limits=rng.random() < 0.5,
        burst_s=BURST_S,
        # So little that no number of restarts in a minute passes what the burst leaves of the account.
        initial_burst_s=1.0,
        unseen_s_max=10,
        wait_max_s=120,
        pause_max_s=20,
        outage_probe_s=8,
    )
