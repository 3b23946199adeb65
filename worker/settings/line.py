"""The line of a record: how many at once, how often tried, how its credit is divided, how it ends."""

from pydantic import Field

from worker.settings.section import Section


class IntakeSettings(Section):
    """What may be in flight at once."""

    records_max: int = Field(200, ge=1, description="records fetched and not yet settled")
    bytes_max: int = Field(64 * 2**20, ge=1_024, description="bytes of those records")
    event_bytes_max: int = Field(2**20, ge=64, description="a larger event is a dead letter: too_large")
    outage_probe_s: float = Field(
        30.0, gt=0, description="in an outage one more record is let in this often: it may show that all is well"
    )
    sources_max: int = Field(500, ge=1, le=500, description="an event with more is a dead letter: invalid_event")


class SettleSettings(Section):
    """Attempts, deadlines and pauses of one record."""

    attempts_max: int = Field(5, ge=1, description="tries before a record is set aside; outages do not count")
    judge_deadline_s: float = Field(120.0, gt=0, description="one attempt's judging")
    backoff_base_s: float = Field(0.5, gt=0, description="pause after the first failure; doubles, with jitter")
    backoff_max_s: float = Field(30.0, gt=0, description="longest pause between attempts")
    outage_backoff_max_s: float = Field(5.0, gt=0, description="longest pause between looks at something down")


class CreditSettings(Section):
    """How a key point's coverage is divided."""

    policy: str = Field("max", pattern="^(max|top_k|rank_weighted)$", description="max, top_k or rank_weighted")
    k: int = Field(2, ge=1, description="top_k: how many supports add up")
    omega: tuple[str, ...] = Field(
        ("1", "1/2", "1/4"), description='rank_weighted: JSON list of fractions, non-increasing from "1"'
    )
    grouping: str = Field("source", pattern="^(source|owner)$", description="source, or owner (Owen value)")


class ShutdownSettings(Section):
    """Leaving."""

    drain_s: float = Field(25.0, ge=0, description="how long SIGTERM waits for records in flight")
