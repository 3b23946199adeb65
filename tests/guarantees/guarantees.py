"""The guarantees, each as an object that finds what breaks it, in whatever any run left behind."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Protocol

from schemas.attribution_computed import AttributionComputed
from schemas.dead_letter import DeadLetterHeaders, DeadLetterReason
from tests.guarantees.evidence import Evidence, Position, Row, Sent, key_of
from tests.support.llm_lines import billed_usd, usage_in
from worker.adapters.postgres.evidence import decode_evidence
from worker.adapters.postgres.headers import encode_headers
from worker.codec.identity import event_id
from worker.core.local.support import index_of, support_of
from worker.core.local.terms import content_terms
from worker.core.model import Answer
from worker.core.records import Record
from worker.embedded.llm_emulator.bill import BillLine

ONE = 10**12


class Guarantee(Protocol):
    def violations(self, evidence: Evidence) -> Iterator[str]:
        """Each in a line; none where the guarantee held."""
        ...


class EveryEventTerminal:
    """Every record has exactly one outcome, and nothing has one that was not sent."""

    def violations(self, evidence: Evidence) -> Iterator[str]:
        for sent in evidence.records:
            yield from self._of(sent, evidence)
        positions = {sent.position for sent in evidence.records}
        for position in evidence.dead_letter_at.keys() - positions:
            yield f"a dead letter at {position}, where no record is"
        keys = {sent.answer.key for sent in evidence.records if sent.answer}
        for key in evidence.settled.keys() - keys:
            yield f"{key} is settled, and nobody sent it"

    def _of(self, sent: Sent, evidence: Evidence) -> Iterator[str]:
        letter = evidence.dead_letter_at.get(sent.position)
        if sent.answer is None:
            expected = sent.refusal.value if sent.refusal else None
            reason = letter["reason"] if letter else None
            if reason != expected:
                yield f"{sent.where}: dead letter {reason}, expected {expected}"
            return
        settled = evidence.settled.get(sent.answer.key) == sent.answer.content_hash
        if not settled and letter is None:
            yield f"{sent.where} ({sent.answer.key}) has no outcome"
        alone = evidence.times_sent[sent.answer.key, sent.answer.content_hash] == 1
        if settled and letter is not None and (alone or letter["reason"] == DeadLetterReason.CONFLICTING_CONTENT):
            yield f"{sent.where} ({sent.answer.key}) has two outcomes: attributed, and {letter['reason']}"


class PersistedExactlyOnce:
    """One attribution for each settled answer, of what was sent, with a row for each source."""

    def violations(self, evidence: Evidence) -> Iterator[str]:
        times = Counter(key_of(row) for row in evidence.attributions)
        for key in evidence.settled.keys() | times.keys():
            if times[key] != 1 or key not in evidence.settled:
                yield f"{key}: {times[key]} attributions, {'a' if key in evidence.settled else 'no'} key"
        sources: dict[object, list[tuple[int, str]]] = defaultdict(list)
        for row in evidence.source_attributions:
            sources[key_of(row), row["revision"]].append((row["position"], row["source_id"]))
        for row in evidence.attributions:
            stored = sorted(sources.pop((key_of(row), row["revision"]), []))
            answer = _answer_of(row, evidence)
            expected = list(enumerate(source.source_id for source in answer.sources)) if answer else None
            if stored != expected:
                yield f"{key_of(row)}: rows of sources {stored}, sent were {expected}"
        for orphan in sources:
            yield f"{orphan}: rows of sources without an attribution"


class NeverCommittedPastUnfinished:
    """At no look was an offset committed past a record without an outcome; in the end all of them are."""

    def violations(self, evidence: Evidence) -> Iterator[str]:
        yield from evidence.committed_too_far
        for partition, end in evidence.ends.items():
            if evidence.committed.get(partition, 0) != end:
                yield f"partition {partition}: committed {evidence.committed.get(partition)}, its end is {end}"


class CreditConserved:
    """Every sum is exact, every number follows from its evidence, and no error was paid for."""

    def violations(self, evidence: Evidence) -> Iterator[str]:
        yield from evidence.recomputed_otherwise
        earned: dict[object, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for row in evidence.source_attributions:
            credit, share = earned[key_of(row)]
            earned[key_of(row)] = credit + row["credit_units"], share + row["share_units"]
        for row in evidence.attributions:
            shares = ONE if row["status"] == "attributed" else 0
            if earned[key_of(row)] != (row["utility_units"], shares):
                yield f"{key_of(row)}: credits and shares {earned[key_of(row)]}, not {row['utility_units'], shares}"
            if row["utility_units"] + row["residual_units"] != ONE:
                yield f"{key_of(row)}: utility and residual are not one"
            yield from self._unbelievable(row, evidence)

    def _unbelievable(self, row: Row, evidence: Evidence) -> Iterator[str]:
        """The emulated model's opinion is known: a support is that, or 0 where its quote could not be found."""
        answer, found = _answer_of(row, evidence), decode_evidence(json.loads(row["evidence"]))
        indexes = [index_of(source) for source in answer.sources] if answer else []
        for key_point, point in enumerate(found.key_points):
            terms = content_terms(point.text)
            for source, index in enumerate(indexes):
                support, opinion = found.supports[key_point][source], support_of(terms, index)
                if support != opinion and not (support == 0 and (key_point, source) in found.unevidenced):
                    yield f"{key_of(row)}: support {support} of key point {key_point}, source {source}; it is {opinion}"


class CostConserved:
    """Each billed call has one row; what is known equals the bill; what was on record was not bought again."""

    def violations(self, evidence: Evidence) -> Iterator[str]:
        billed = {line.client_request_id: line for line in evidence.bill}
        rows = {row["client_request_id"]: row for row in evidence.llm_calls}
        if len(billed) != len(evidence.bill) or len(rows) != len(evidence.llm_calls):
            yield "a call was sent twice under one id, or recorded twice"
        for call_id in billed.keys() - rows.keys():
            yield f"call {call_id} was billed, and nobody knows of it"
        for call_id, row in rows.items():
            yield from (f"call {call_id}: {problem}" for problem in _against(row, billed.get(call_id)))
        lost = [
            call_id
            for call_id, row in rows.items()
            if row["outcome"] == "unknown" and (line := billed.get(call_id)) and line.delivered
        ]
        if len(lost) > evidence.calls_cut_off_max:
            yield f"{len(lost)} responses were delivered and lost; only {evidence.calls_cut_off_max} calls were cut off"
        yield from (f"llm_call_faults: {row['answer_id']}: {row['fault']}" for row in evidence.call_faults)
        yield from self._bought_again(evidence, billed)

    def _bought_again(self, evidence: Evidence, billed: dict[str | None, BillLine]) -> Iterator[str]:
        usable: dict[bytes, Row] = {}
        for row in sorted(evidence.llm_calls, key=lambda row: row["started_at"]):
            before = usable.get(row["call_key"])
            if before is not None and row["started_at"] > before["finished_at"] and row["outcome"] != "failed":
                yield f"call {row['client_request_id']} was bought although {before['client_request_id']} was on record"
            line = billed.get(row["client_request_id"])
            if row["outcome"] == "complete" and line is not None and line.fault is None:
                usable.setdefault(row["call_key"], row)


class OutboxDelivered:
    """Published is what is stored, and nothing else; copies of one event are the same bytes."""

    def violations(self, evidence: Evidence) -> Iterator[str]:
        if evidence.outbox_rows:
            yield f"{evidence.outbox_rows} messages are not published"
        copies: dict[str, set[tuple[bytes | None, bytes | None]]] = defaultdict(set)
        for record in evidence.published:
            copies[_header(record, "ce_id")].add((record.key, record.value))
        stored = {str(event_id(key_of(row), row["revision"])): row for row in evidence.attributions}
        for ce_id in stored.keys() - copies.keys():
            yield f"{key_of(stored[ce_id])} was never published"
        for ce_id in copies.keys() - stored.keys():
            yield f"event {ce_id} was published, and is not stored"
        for ce_id in stored.keys() & copies.keys():
            if len(copies[ce_id]) > 1:
                yield f"event {ce_id} was published with {len(copies[ce_id])} contents"
        yield from self._told_otherwise(copies, evidence)

    def _told_otherwise(
        self, copies: dict[str, set[tuple[bytes | None, bytes | None]]], evidence: Evidence
    ) -> Iterator[str]:
        shares: dict[object, list[tuple[int, int]]] = defaultdict(list)
        for row in sorted(evidence.source_attributions, key=lambda row: row["position"]):
            shares[key_of(row)].append((row["credit_units"], row["share_units"]))
        for row in evidence.attributions:
            for _, value in copies.get(str(event_id(key_of(row), row["revision"])), ()):
                told = AttributionComputed.model_validate_json(value or b"")
                units = [(source.credit_units, source.share_units) for source in told.sources]
                if (told.status, told.utility_units) != (row["status"], row["utility_units"]) or units != shares[
                    key_of(row)
                ]:
                    yield f"{key_of(row)}: published otherwise than stored"


class DeadLettersIntact:
    """Bytes, key and headers of a record set aside are untouched, in the table and on the topic."""

    def violations(self, evidence: Evidence) -> Iterator[str]:
        sent = {item.position: item.record for item in evidence.records}
        for position, row in evidence.dead_letter_at.items():
            record = sent.get(position)
            kept = (row["key"], row["value"], bytes(row["headers"]))
            if record is not None and kept != (record.key, record.value, encode_headers(record.headers)):
                yield f"the row of dead letter {position} is not the record"
            if row["reason"] not in set(DeadLetterReason):
                yield f"dead letter {position}: unheard-of reason {row['reason']}"
        yield from self._told_otherwise(sent, evidence)

    def _told_otherwise(self, sent: dict[Position, Record], evidence: Evidence) -> Iterator[str]:
        told: set[Position] = set()
        for message in evidence.published_dead_letters:
            own, added = DeadLetterHeaders.split(message.headers)
            position = added.partition, added.offset
            told.add(position)
            record, row = sent.get(position), evidence.dead_letter_at.get(position)
            if row is None or row["reason"] != added.reason:
                yield f"dead letter {position} was published, and is not stored so"
            if record is None or (message.key, message.value, own) != (record.key, record.value, record.headers):
                yield f"the message of dead letter {position} is not the record"
        for position in evidence.dead_letter_at.keys() - told:
            yield f"dead letter {position} was never published"


class NoBugs:
    """No worker ended by an error that nobody foresaw."""

    def violations(self, evidence: Evidence) -> Iterator[str]:
        yield from evidence.bugs


GUARANTEES: Sequence[Guarantee] = (
    EveryEventTerminal(),
    PersistedExactlyOnce(),
    NeverCommittedPastUnfinished(),
    CreditConserved(),
    CostConserved(),
    OutboxDelivered(),
    DeadLettersIntact(),
    NoBugs(),
)


def broken_by(evidence: Evidence) -> dict[str, list[str]]:
    """Violations by the name of the guarantee, of those that were broken."""
    found = {type(guarantee).__name__: list(guarantee.violations(evidence)) for guarantee in GUARANTEES}
    return {name: violations for name, violations in found.items() if violations}


def _against(row: Row, line: BillLine | None) -> Iterator[str]:
    """A row of the journal against its line of the bill."""
    outcome, cost = row["outcome"], row["cost_usd"]
    if outcome == "intent":
        yield "is still open"
    if line is None:
        if outcome == "complete":
            yield "is complete, and was never billed"
        if outcome == "failed" and cost != 0:
            yield f"failed, and cost {cost}"
        return
    if outcome == "failed":
        yield "was worked for and billed, and is recorded as failed"
    if outcome == "unknown" and (cost is not None or row["reserved_cost_usd"] < billed_usd(line)):
        yield f"is unknown and not bounded: cost {cost}, reserved {row['reserved_cost_usd']}"
    if outcome == "complete" and row["usage_source"] == "provider":
        if usage_in(row) != line.usage:
            yield f"used {usage_in(row)}, billed was {line.usage}"
        if cost != billed_usd(line):
            yield f"cost {cost}, billed was {billed_usd(line)}"


def _answer_of(row: Row, evidence: Evidence) -> Answer | None:
    content_hash = evidence.settled.get(key_of(row))
    return None if content_hash is None else evidence.answer_of.get((key_of(row), content_hash))


def _header(record: Record, name: str) -> str:
    return next((value.decode() for key, value in record.headers if key == name and value is not None), "")
