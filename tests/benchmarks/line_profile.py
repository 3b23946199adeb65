"""What a running line spends its processor time on: samples of its stack, each counted for one step."""

import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType

from greenlet import getcurrent  # type: ignore[import-untyped]

from worker.adapters.kafka.consumer import KafkaRecordStream
from worker.adapters.kafka.producer import KafkaPublisher
from worker.adapters.postgres import rows
from worker.adapters.postgres.attribution_store import Batches
from worker.adapters.postgres.outbox_store import PostgresOutboxStore
from worker.codec import decode_answer, encode_attribution
from worker.core.attribution import attribute
from worker.judge import flaw_of
from worker.relay import Relay
from worker.telemetry import Telemetry

INTERVAL_S = 0.002
"""Of processor time; a sample takes some microseconds."""

_CLAIM: object = PostgresOutboxStore.claim
STEPS: Mapping[CodeType, str] = {
    decode_answer.__code__: "decode",
    flaw_of.__code__: "check the judgement",
    attribute.__code__: "credit",
    encode_attribution.__code__: "encode the message",
    rows.answer_arrays.__code__: "make the rows",
    rows.attribution_rows.__code__: "make the rows",
    rows.source_rows.__code__: "make the rows",
    rows.outbox_rows.__code__: "make the rows",
    Telemetry.record_settled.__code__: "metrics and log line",
    Batches.find.__code__: "look up what is settled",
    Batches.save.__code__: "claim, write, commit",
    getattr(_CLAIM, "__wrapped__").__code__: "relay: claim and delete",  # noqa: B009  # contextlib's, and untyped
    Relay._publish_batch.__code__: "relay: claim and delete",
    KafkaPublisher.publish.__code__: "relay: publish",
    KafkaRecordStream.fetch.__code__: "read from Kafka",
}
PACKAGES = {
    "aiokafka.producer": "relay: publish",
    "aiokafka.consumer": "read from Kafka",
    "worker": "tasks: consume, settle, process, coalesce",
}
REST = "event loop, sockets, drivers"


@contextmanager
def profiled() -> Iterator[Counter[str]]:
    """Samples by step, complete when the context is left."""
    samples: Counter[str] = Counter()

    def sample(_: int, frame: FrameType | None) -> None:
        samples[step_of(frame)] += 1

    before = signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
    try:
        yield samples
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def step_of(frame: FrameType | None) -> str:
    """Of the innermost call that has a step; else of the innermost package that has one."""
    package_step: str | None = None
    for caller in callers(frame):
        step = STEPS.get(caller.f_code)
        if step is not None:
            return step
        package_step = package_step or step_of_package(caller.f_globals.get("__name__", ""))
    return package_step or REST


def step_of_package(module: str) -> str | None:
    return next((step for package, step in PACKAGES.items() if module.startswith(package)), None)


def callers(frame: FrameType | None) -> Iterator[FrameType]:
    """From the innermost outwards; SQLAlchemy runs in greenlets, whose outermost frame has another's behind it."""
    greenlet = getcurrent()
    while frame is not None:
        yield frame
        frame = frame.f_back
        while frame is None and greenlet.parent is not None:
            greenlet = greenlet.parent
            frame = greenlet.gr_frame
