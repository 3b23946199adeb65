"""What the worker publishes, as the configuration has it: attributions and dead letters as messages."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from worker.app.method import code_version
from worker.codec import encode_attribution, encode_dead_letter
from worker.core.model import Attribution
from worker.core.records import OutboundMessage
from worker.ports import DeadLetter
from worker.settings import Settings
from worker.telemetry import Tracing


def build_announcement(settings: Settings, tracing: Tracing) -> Callable[[Attribution], OutboundMessage]:
    """Attributions as messages, under the current span where one is recorded, else under the answer's own."""
    topic = settings.kafka.attributions_topic
    source_uri = f"/attribution-worker/{settings.kafka.group_id}"

    def announce(attribution: Attribution) -> OutboundMessage:
        traceparent = tracing.traceparent()
        if traceparent is not None:
            attribution = replace(attribution, answer=replace(attribution.answer, traceparent=traceparent))
        return encode_attribution(
            attribution,
            topic=topic,
            source_uri=source_uri,
            code_version=code_version(),
            computed_at=datetime.now(UTC),
        )

    return announce


def build_dead_letter_message(settings: Settings) -> Callable[[DeadLetter], OutboundMessage]:
    """Dead letters as messages; their headers, trace context too, are the record's own."""

    def message(dead_letter: DeadLetter) -> OutboundMessage:
        return encode_dead_letter(
            dead_letter.record,
            reason=dead_letter.reason,
            detail=dead_letter.detail,
            attempts=dead_letter.attempts,
            topic=settings.kafka.dead_letter_topic,
            copy_bytes_max=settings.dead_letters.copy_bytes_max,
            code_version=code_version(),
        )

    return message
