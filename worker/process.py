"""What one event means: decode → already settled? → judge → credit → save. Each step says what a crash there means."""

from collections.abc import Awaitable, Callable

from schemas.dead_letter import DeadLetterReason
from worker.core.model import Answer, Attribution, Judgement
from worker.core.outcome import Outcome, Processed
from worker.core.records import OutboundMessage, Record
from worker.errors import PermanentError
from worker.ports import AttributionStore, SaveResult, SetAside
from worker.telemetry import LineStage, Telemetry


class Process:
    """One record to its outcome; holds no state between records."""

    def __init__(
        self,
        *,
        decode: Callable[[Record], Answer],
        store: AttributionStore,
        judge: Callable[[Answer], Awaitable[Judgement]],
        attribute: Callable[[Answer, Judgement], Attribution],
        encode: Callable[[Attribution], OutboundMessage],
        on_stored: Callable[[], None],
        telemetry: Telemetry,
    ) -> None:
        self._decode = decode
        self._store = store
        self._judge = judge
        self._attribute = attribute
        self._encode = encode
        self._on_stored = on_stored
        self._telemetry = telemetry

    async def __call__(self, record: Record) -> Processed:
        """Run one record.

        Raises:
            PermanentError: the record can never succeed.
            RetryableError: this try failed.
            UnavailableError: something needed is down.
        """
        if record.value is None:
            return Processed(Outcome.SKIPPED)
        watch = self._telemetry.stopwatch()
        # 1. Decode. A crash here is seen again at redelivery; nothing has happened yet.
        answer = self._decode(record)
        watch.lap(LineStage.DECODE)
        # 2. Already done? A settled answer is never judged again, whatever method is deployed now; a record that was
        #    set aside before its offset could be committed stays set aside, and is not paid as well.
        found = await self._store.find(answer.key, record)
        watch.lap(LineStage.FIND)
        if isinstance(found, SetAside):
            return Processed(Outcome.DEAD_LETTER, answer.key)
        if found is not None:
            return _settled_before(answer, same_content=found.content_hash == answer.content_hash)
        # 3. Judge. A crash here is a redelivery that judges again; no transaction is open meanwhile.
        judgement = await self._judge(answer)
        watch.lap(LineStage.JUDGE)
        # 4. Credit: pure arithmetic, the same on every machine.
        attribution = self._attribute(answer, judgement)
        watch.lap(LineStage.CREDIT)
        # 5. Save: result, evidence and announcement in one transaction, or none of it. A crash before COMMIT is a
        #    redelivery; after COMMIT the redelivery ends at step 2, and the relay publishes what was stored.
        message = self._encode(attribution)
        with self._telemetry.tracing.settle():
            result = await self._store.save(attribution, message, record)
        watch.lap(LineStage.SAVE)
        if result is SaveResult.SET_ASIDE:
            return Processed(Outcome.DEAD_LETTER, answer.key)
        if result is not SaveResult.SAVED:
            return _settled_before(answer, same_content=result is SaveResult.DUPLICATE)
        self._on_stored()
        return Processed(Outcome(attribution.status.value), answer.key, attribution)


def _settled_before(answer: Answer, *, same_content: bool) -> Processed:
    if not same_content:
        raise PermanentError(
            DeadLetterReason.CONFLICTING_CONTENT,
            "this tenant and answer_id were settled with other content (query, answer, sources or reward differ)",
        )
    return Processed(Outcome.DUPLICATE, answer.key)
