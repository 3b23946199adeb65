"""Every metric in one list: name, kind, unit, help, and what bounds the values of its labels."""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from schemas.dead_letter import DeadLetterReason
from worker.core.breaker import BreakerState
from worker.core.budget import Period
from worker.core.calls import CallFailure
from worker.core.charging import Dimension
from worker.core.llm import Finish
from worker.core.outcome import Outcome


class Kind(StrEnum):
    """What Prometheus calls the type."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Unit(StrEnum):
    """What one of it is."""

    RECORDS = "records"
    BYTES = "bytes"
    PARTITIONS = "partitions"
    OFFSET = "offset"
    SECONDS = "seconds"
    RATIO = "ratio"
    EVENTS = "events"
    MESSAGES = "messages"
    CALLS = "calls"
    TOKENS = "tokens"
    USD = "usd"
    FLAG = "flag"  # 1 or 0
    BY_LABEL = "by_label"  # as the label says


class Source(Enum):
    """Where its values come from."""

    EVENTS = auto()  # counted or timed as things happen
    SCRAPE = auto()  # read from the worker's state when somebody asks


class LineStage(StrEnum):
    """The steps of `process`, as timed."""

    DECODE = "decode"
    FIND = "find"
    JUDGE = "judge"
    CREDIT = "credit"
    SAVE = "save"


class Position(StrEnum):
    """How far a partition has come; each the next offset, as Kafka's own."""

    SEEN = "seen"  # fetched
    COMPLETED = "completed"  # the highest with an outcome
    COMMITTABLE = "committable"  # every one below has its outcome
    COMMITTED = "committed"


class WorkerState(StrEnum):
    """What a worker is doing."""

    STARTING = "starting"  # no partitions yet
    RUNNING = "running"
    WAITING = "waiting"  # something is down; intake is closed
    ENDING = "ending"  # nothing further is started; what runs is drained


class TokenBucket(StrEnum):
    """Disjoint, as in `llm_calls`."""

    INPUT = "input"
    CACHE_READ = "cache_read"
    CACHE_WRITE = "cache_write"
    OUTPUT = "output"
    REASONING = "reasoning"


@dataclass(frozen=True, slots=True)
class Label:
    """`values` are all there can be; where they are not known before, `bounded_by` says why they are few."""

    name: str
    values: tuple[str, ...] = ()
    bounded_by: str = ""


def _one_of(name: str, values: type[StrEnum]) -> Label:
    return Label(name, tuple(value.value for value in values))


PARTITION = Label("partition", bounded_by="the answers topic's partitions that this worker has")
PROVIDER = Label("provider", bounded_by="the configured judge and its fallback")
MODEL = Label("model", bounded_by="the configured judge and its fallback")
VERSION = Label("version", bounded_by="one build")
SQLSTATE = Label("sqlstate", bounded_by="PostgreSQL's states that are tried again, and `none` for a lost connection")

CALL_ENDS = tuple(end.value for end in (*Finish, *CallFailure) if end is not CallFailure.REFUSED)
"""A refusal is one, whether the model or the provider says it."""

LINE_SECONDS = (
    0.0001,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    120,
    300,
)
CALL_SECONDS = (0.1, 0.25, 0.5, 1, 2, 3, 5, 8, 13, 20, 30, 45, 60, 90, 120, 300)
WAIT_SECONDS = (0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


@dataclass(frozen=True, slots=True)
class Spec:
    """One metric. A histogram has `buckets`: upper bounds in its unit."""

    name: str
    kind: Kind
    unit: Unit
    help: str
    labels: tuple[Label, ...] = ()
    source: Source = Source.EVENTS
    buckets: tuple[float, ...] = ()

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label.name for label in self.labels)

    @property
    def series(self) -> tuple[str, ...]:
        """The names that Prometheus stores, for queries."""
        match self.kind:
            case Kind.COUNTER:
                return (f"{self.name}_total",)
            case Kind.GAUGE:
                return (self.name,)
            case Kind.HISTOGRAM:
                return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")


def _counter(name: str, unit: Unit, told: str, *labels: Label, source: Source = Source.EVENTS) -> Spec:
    return Spec(f"attribution_{name}", Kind.COUNTER, unit, told, labels, source)


def _gauge(name: str, unit: Unit, told: str, *labels: Label) -> Spec:
    return Spec(f"attribution_{name}", Kind.GAUGE, unit, told, labels, Source.SCRAPE)


def _histogram(name: str, told: str, *labels: Label, buckets: tuple[float, ...]) -> Spec:
    return Spec(f"attribution_{name}_seconds", Kind.HISTOGRAM, Unit.SECONDS, told, labels, Source.EVENTS, buckets)


class Metric(Enum):
    """All of them. Names are a contract with dashboards and alerts."""

    # The worker
    BUILD = _gauge("build", Unit.FLAG, "1, with the version that runs.", VERSION)
    WORKER_STATE = _gauge("worker_state", Unit.FLAG, "1 for what the worker is doing.", _one_of("state", WorkerState))
    POLL_LOOP_AGE = _gauge("poll_loop_age_seconds", Unit.SECONDS, "Since the poll loop last turned.")
    READS_STARVED = _gauge(
        "reads_starved_seconds", Unit.SECONDS, "For how long reads gave nothing although records are there to read."
    )
    OUTAGE_WAITING = _gauge("outage_waiting_records", Unit.RECORDS, "Records waiting for something that is down.")

    # The partitions
    PARTITION_OFFSET = _gauge(
        "partition_offset", Unit.OFFSET, "How far a partition has come.", PARTITION, _one_of("position", Position)
    )
    PARTITION_LAG = _gauge(
        "partition_lag_records", Unit.RECORDS, "Records of a partition without an outcome, fetched or not.", PARTITION
    )
    OLDEST_UNFINISHED = _gauge(
        "oldest_unfinished_seconds", Unit.SECONDS, "Since the oldest record without an outcome was fetched; 0: none."
    )
    IN_FLIGHT_RECORDS = _gauge(
        "in_flight_records",
        Unit.RECORDS,
        "Records fetched and not settled.",
        Label("phase", ("waiting", "running")),
    )
    IN_FLIGHT_BYTES = _gauge("in_flight_bytes", Unit.BYTES, "Bytes of the records fetched and not settled.")
    ASSIGNED_PARTITIONS = _gauge("assigned_partitions", Unit.PARTITIONS, "Partitions that this worker reads.")
    PAUSED_PARTITIONS = _gauge(
        "paused_partitions", Unit.PARTITIONS, "Of these, paused: intake is full, or closed by an outage."
    )
    RECORDS_FETCHED = _counter("records_fetched", Unit.RECORDS, "Records fetched.", source=Source.SCRAPE)
    REBALANCES = _counter("rebalances", Unit.EVENTS, "Assignments by the group.", source=Source.SCRAPE)
    COMMIT_FAILURES = _counter(
        "commit_failures", Unit.EVENTS, "Offset commits that failed, and were due again.", source=Source.SCRAPE
    )

    # The records
    RECORDS = _counter("records", Unit.RECORDS, "Records settled, by outcome.", _one_of("outcome", Outcome))
    SETTLE = _histogram("settle", "From a record's start to its outcome.", buckets=LINE_SECONDS)
    STAGE = _histogram(
        "stage", "Each step of the line, where it succeeded.", _one_of("stage", LineStage), buckets=LINE_SECONDS
    )
    ATTEMPTS_FAILED = _counter("attempts_failed", Unit.EVENTS, "Attempts that failed by the record's own fault.")
    OUTAGE_WAITS = _counter("outage_waits", Unit.EVENTS, "Waits for something down; they use up no attempt.")
    DEAD_LETTERS = _counter(
        "dead_letters", Unit.RECORDS, "Records set aside, by reason.", _one_of("reason", DeadLetterReason)
    )
    DEAD_LETTER_RATIO = _gauge(
        "dead_letter_ratio", Unit.RATIO, "Dead letters among the topic's latest outcomes; past its limit workers stop."
    )
    DEAD_LETTERS_IN_A_ROW = _gauge(
        "dead_letters_in_a_row", Unit.RECORDS, "Dead letters of the topic since its last settled answer."
    )

    # The content
    UNKNOWN_FIELDS = _counter("unknown_fields", Unit.EVENTS, "Fields of events that this version does not know.")
    SCRUBBED = _counter("scrubbed_characters", Unit.EVENTS, "Characters that cannot be stored or sent, replaced.")
    UNEVIDENCED = _counter("unevidenced_supports", Unit.EVENTS, "Supports set to 0 for want of evidence.")
    VERDICT_PARTS_IGNORED = _counter(
        "verdict_parts_ignored", Unit.EVENTS, "Parts of LLM replies that nobody asked for."
    )
    JUDGEMENTS_REUSED = _counter("judgements_reused", Unit.RECORDS, "Answers whose judgement was copied at no cost.")
    FALLBACKS = _counter("fallbacks", Unit.RECORDS, "Answers judged by the fallback, the first judge being down.")

    # The attribution LLM
    LLM_CALLS = _counter(
        "llm_calls", Unit.CALLS, "LLM calls, by how they ended.", PROVIDER, MODEL, Label("end", CALL_ENDS)
    )
    LLM_CALL = _histogram("llm_call", "From request to response of a call.", PROVIDER, MODEL, buckets=CALL_SECONDS)
    LLM_TOKENS = _counter(
        "llm_tokens", Unit.TOKENS, "LLM tokens, by bucket.", PROVIDER, MODEL, _one_of("bucket", TokenBucket)
    )
    LLM_COST = _counter(
        "llm_cost_usd", Unit.USD, "LLM cost, for graphs; the exact one is in llm_calls.", PROVIDER, MODEL
    )
    LLM_UNPRICED = _counter("llm_calls_unpriced", Unit.CALLS, "LLM calls of unknown cost.", PROVIDER, MODEL)
    BUDGET_LEFT = _gauge(
        "budget_left_usd", Unit.USD, "Of the total budget, not yet leased by any worker.", _one_of("period", Period)
    )

    # The limiter
    LIMITER_WAIT = _histogram(
        "limiter_wait", "A call's wait for the rate limits.", PROVIDER, MODEL, buckets=WAIT_SECONDS
    )
    LIMITER_WAITING = _gauge("limiter_waiting_calls", Unit.CALLS, "Calls in line.", PROVIDER, MODEL)
    LIMITER_IN_FLIGHT = _gauge("limiter_in_flight_calls", Unit.CALLS, "Calls under way.", PROVIDER, MODEL)
    LIMITER_SPEED = _gauge(
        "limiter_speed_ratio", Unit.RATIO, "Speed as a share of the limits; below 1 after refusals.", PROVIDER, MODEL
    )
    LIMITER_PAUSED = _gauge(
        "limiter_paused_seconds", Unit.SECONDS, "How much longer no call is made, by a refusal.", PROVIDER, MODEL
    )
    LIMITER_AVAILABLE = _gauge(
        "limiter_available",
        Unit.BY_LABEL,
        "Requests or tokens that may be used now; negative while a debt is paid back.",
        PROVIDER,
        MODEL,
        _one_of("dimension", Dimension),
    )
    BREAKER_STATE = _gauge(
        "breaker_state",
        Unit.FLAG,
        "1 for the state of the provider's circuit breaker.",
        PROVIDER,
        MODEL,
        _one_of("state", BreakerState),
    )

    # PostgreSQL and the outbox
    DATABASE_REACHABLE = _gauge("database_reachable", Unit.FLAG, "1 while the last look at the database succeeded.")
    DATABASE_RETRIES = _counter(
        "database_retries",
        Unit.EVENTS,
        "Transactions done again after a transient error.",
        SQLSTATE,
        source=Source.SCRAPE,
    )
    OUTBOX_PENDING = _gauge("outbox_pending_messages", Unit.MESSAGES, "Messages stored and not yet published.")
    OUTBOX_AGE = _gauge("outbox_age_seconds", Unit.SECONDS, "Age of the oldest message not yet published; 0: none.")
    MESSAGES_PUBLISHED = _counter("messages_published", Unit.MESSAGES, "Outbox messages that the broker acknowledged.")


METRICS: tuple[Spec, ...] = tuple(metric.value for metric in Metric)
