"""What must hold when a run has ended, asked of the durable truth, the broker and the provider's bill."""

from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from typing import assert_never

from schemas.dead_letter import DeadLetterReason
from tests.fakes.journal import FakeRow
from tests.guarantees.simulation.database import STARTED_AT, now
from tests.guarantees.simulation.provider import Billed
from tests.guarantees.simulation.truth import Place, place_of, same_content
from tests.guarantees.simulation.worker import Servers
from tests.guarantees.simulation.world import Guarantee
from worker.codec.dead_letters import decode_dead_letter
from worker.core.model import UNIT_SCALE, Attribution
from worker.llm_ports import CallOutcome
from worker.settings import KafkaSettings

OWN_FAULTS = frozenset(
    {
        DeadLetterReason.JUDGE_INCOMPLETE,
        DeadLetterReason.ATTEMPTS_EXHAUSTED,
        DeadLetterReason.BUDGET_EXHAUSTED,
    }
)
"""Why a valid answer may be set aside, when its calls go wrong or its tenant has spent its budget."""


@dataclass(frozen=True)
class Guarantees:
    """Each reports what breaks it to the world."""

    servers: Servers

    def check(self) -> None:
        self.every_event_terminal()
        self.credit_conserved()
        self.cost_conserved()
        self.budgets_kept()
        self.outbox_delivered()
        self.dead_letters_intact()

    def every_event_terminal(self) -> None:
        """Each record has the outcome that its content, and what else happened, allows."""
        truth = self.servers.truth
        reasons = {place_of(letter.record): letter.reason for letter in truth.store.dead_letters}
        for place, produced in truth.produced.items():
            self._check_outcome(place, reasons.get(place))
            if produced.value is None and place in reasons:
                self._violate(Guarantee.EVERY_EVENT_TERMINAL, f"the tombstone {place} was set aside")
        for place in set(reasons) - set(truth.produced):
            self._violate(Guarantee.EVERY_EVENT_TERMINAL, f"{place} was set aside, and nobody produced it")

    def _check_outcome(self, place: Place, reason: DeadLetterReason | None) -> None:
        truth, schedule = self.servers.truth, self.servers.schedule
        produced = truth.produced[place]
        answer = produced.answer
        settled = None if answer is None else truth.store.attributions.get(answer.key)
        if reason is None:
            if settled is not None and same_content(settled, produced) and settled.status is not produced.status:
                self._violate(Guarantee.EVERY_EVENT_TERMINAL, f"{place} is {settled.status}, not {produced.status}")
            return
        allowed = set(produced.reasons)
        if answer is not None:
            allowed |= set() if schedule.is_fair else OWN_FAULTS
            if settled is not None and not same_content(settled, produced):
                allowed.add(DeadLetterReason.CONFLICTING_CONTENT)
        if reason not in allowed:
            self._violate(Guarantee.EVERY_EVENT_TERMINAL, f"{place} ({produced.kind.name}) was set aside as {reason}")

    def credit_conserved(self) -> None:
        for attribution in self.servers.truth.store.attributions.values():
            shares = sum(credit.share_units for credit in attribution.source_credits)
            credits_ = sum(credit.credit_units for credit in attribution.source_credits)
            whole = UNIT_SCALE if attribution.utility_units else 0
            if shares != whole or credits_ != attribution.utility_units:
                self._violate(Guarantee.CREDIT_CONSERVED, f"{attribution.answer.key.answer_id}: {shares}, {credits_}")
            if attribution.utility_units + attribution.residual_units != UNIT_SCALE and attribution.source_credits:
                self._violate(Guarantee.CREDIT_CONSERVED, f"{attribution.answer.key.answer_id}: utility and residual")
            self._check_cost_of(attribution)

    def _check_cost_of(self, attribution: Attribution) -> None:
        usage, key = attribution.judgement.usage, attribution.answer.key
        rows = [row for row in self.servers.truth.journal.rows.values() if row.intent.answer_key == key]
        known = sum((row.cost_usd for row in rows if row.cost_usd is not None), Decimal(0))
        if attribution.judgement.reused_from is not None:
            if usage.calls or usage.cost_usd:
                self._violate(
                    Guarantee.COST_CONSERVED, f"the copied judgement of {key.answer_id} costs {usage.cost_usd}"
                )
        elif usage.cost_usd is not None and usage.cost_usd > known:
            self._violate(Guarantee.COST_CONSERVED, f"{key.answer_id} costs {usage.cost_usd}, its calls {known}")

    def cost_conserved(self) -> None:
        """The bill is the journal; unknown is what was never heard, or heard by who could not write it down."""
        bill = self.servers.vendor.bill
        rows = {str(call_id): row for call_id, row in self.servers.truth.journal.rows.items()}
        for call_id, billed in bill.items():
            problem = self._flaw_of(rows.get(call_id), billed)
            if problem is not None:
                self._violate(Guarantee.COST_CONSERVED, problem)
        for call_id, row in rows.items():
            if row.outcome is CallOutcome.COMPLETE and call_id not in bill:
                self._violate(Guarantee.COST_CONSERVED, "a complete call was never billed")

    def _flaw_of(self, row: FakeRow | None, billed: Billed) -> str | None:
        if row is None:
            return "a billed call is not in the journal"
        match row.outcome:
            case CallOutcome.COMPLETE:
                right = row.cost_usd == billed.cost_usd
                return None if right else f"billed {billed.cost_usd}, on record {row.cost_usd}"
            case CallOutcome.FAILED:
                return "a billed call is on record as one that cost nothing"
            case CallOutcome.UNKNOWN | CallOutcome.INTENT:
                excused = billed.process.was_killed or row.intent.call_id in self.servers.truth.unheard_closes
                if billed.was_heard and not excused:
                    return "a response was heard, and is unknown on record"
                reserved = row.intent.reserved_usd
                within = reserved is not None and billed.cost_usd <= reserved
                return None if within else f"unknown, billed {billed.cost_usd} of {reserved}"
            case _:
                assert_never(row.outcome)

    def budgets_kept(self) -> None:
        """Of each budget, over all the hours that the run touched."""
        limits, truth = self.servers.schedule.budgets, self.servers.truth
        hours = int(now().timestamp() // 3_600) - int(STARTED_AT.timestamp() // 3_600) + 1
        spent: defaultdict[str, Decimal] = defaultdict(Decimal)
        for call_id, row in truth.journal.rows.items():
            billed = self.servers.vendor.bill.get(str(call_id))
            cost = Decimal(0) if billed is None else billed.cost_usd
            spent[row.intent.answer_key.tenant] += cost
        total, each = limits.total_usd_per_hour, limits.tenant_usd_per_hour
        if total is not None and sum(spent.values()) > hours * total:
            self._violate(Guarantee.BUDGETS_KEPT, f"{sum(spent.values())} of {hours} times {total} were spent")
        for tenant, usd in spent.items():
            if each is not None and usd > hours * each:
                self._violate(Guarantee.BUDGETS_KEPT, f"{tenant} spent {usd} of {hours} times {each}")

    def outbox_delivered(self) -> None:
        """Everything stored is published and nothing else, each event under its one id, repeated only as it was."""
        truth, published, kafka = self.servers.truth, self.servers.broker.published, KafkaSettings()
        if truth.store.outbox:
            self._violate(Guarantee.OUTBOX_DELIVERED, f"{len(truth.store.outbox)} messages were never published")
        stored = set(truth.store.attributions)
        by_id: dict[object, object] = {}
        keys = set()
        for message in published[kafka.attributions_topic]:
            event_id = dict(message.headers)["ce_id"]
            if by_id.setdefault(event_id, message.value) != message.value:
                self._violate(Guarantee.OUTBOX_DELIVERED, f"event {event_id!r} was published with two contents")
            keys.add(message.key)
        if len(by_id) != len(stored) or len(keys) != len(stored):
            self._violate(
                Guarantee.OUTBOX_DELIVERED, f"{len(by_id)} events are published, {len(stored)} answers stored"
            )

    def dead_letters_intact(self) -> None:
        """On record and on the topic: the bytes, key and headers that were produced."""
        truth, broker = self.servers.truth, self.servers.broker
        logged = {(tp.partition, record.offset): record for tp, log in broker.logs.items() for record in log}
        told = {}
        for message in broker.published[KafkaSettings().dead_letter_topic]:
            record = decode_dead_letter(message).record
            told[place_of(record)] = record
        kept = {place_of(letter.record): letter.record for letter in truth.store.dead_letters}
        if told.keys() != kept.keys():
            self._violate(Guarantee.DEAD_LETTERS_INTACT, f"{len(kept)} are kept, {len(told)} are published")
        for place, record in (*told.items(), *kept.items()):
            if record != logged.get(place):
                self._violate(Guarantee.DEAD_LETTERS_INTACT, f"{place} is not what was produced")

    def _violate(self, guarantee: Guarantee, problem: str) -> None:
        self.servers.world.violate(guarantee, problem)
