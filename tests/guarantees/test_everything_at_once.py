"""Three workers, everything that breaks, all at once: whether the guarantees held, and whether each would have told.

`make chaos` runs this and every disturbance alone, with ten times the answers.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from schemas.dead_letter import DeadLetterReason
from tests.guarantees.chaos.campaign import Campaign, Report
from tests.guarantees.chaos.disturbances import SCENARIOS
from tests.guarantees.evidence import Evidence, Row, Sent
from tests.guarantees.guarantees import GUARANTEES
from worker.core.records import Record

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(600)]

ANSWERS = 500
SEED = 20_261_130


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """One campaign for all of these tests. Its logs are kept as pytest keeps temporary directories."""
    logs: Path = tmp_path_factory.mktemp("chaos")
    scenario = SCENARIOS["all-at-once"]
    return asyncio.run(Campaign(scenario, SEED, ANSWERS, answers_per_s=40.0, logs=logs).run())


def test_every_guarantee_held(report: Report) -> None:
    again = f"python -m tests.guarantees.chaos {report.scenario} --answers {ANSWERS} --seed {report.seed}"
    assert report.broken == {}, f"again: {again}"


def test_every_disturbance_struck_and_every_kind_of_record_came(report: Report) -> None:
    """What did not happen proves nothing."""
    assert {type(disturbance).__name__ for disturbance in SCENARIOS["all-at-once"].disturbances} == set(report.strikes)
    assert {"attributed", "no_sources", "no_key_points"} <= set(report.outcomes)
    letters = {DeadLetterReason.NOT_JSON, DeadLetterReason.UNSUPPORTED_VERSION, DeadLetterReason.CONFLICTING_CONTENT}
    assert {f"dead letter {reason}" for reason in letters} <= set(report.outcomes)
    assert {"complete", "failed", "unknown"} == set(report.calls)
    assert len({line.fault for line in report.evidence.bill}) > 10
    assert len(report.evidence.records) >= ANSWERS
    assert {"in order", "SIGKILL"} <= set(report.ends)
    assert report.looks > 20


# Each guarantee, asked about a run in which it was broken

Tamper = Callable[[Evidence], Evidence]


def without(rows: Sequence[Any], at: int = 0) -> Sequence[Any]:
    return [row for number, row in enumerate(rows) if number != at]


def changed(
    rows: Sequence[Row], values: Mapping[str, object], where: Callable[[Row], bool] = lambda _: True
) -> Sequence[Row]:
    """The first row that `where` picks has these values."""
    at = next(number for number, row in enumerate(rows) if where(row))
    return [{**row, **values} if number == at else row for number, row in enumerate(rows)]


def first_with(evidence: Evidence, wanted: Callable[[Sent], bool]) -> Sent:
    return next(item for item in evidence.records if wanted(item))


def attributed(row: Row) -> bool:
    return bool(row["status"] == "attributed")


def paid(row: Row) -> bool:
    return bool(row["share_units"])


def complete(row: Row) -> bool:
    return bool(row["outcome"] == "complete" and row["usage_source"] == "provider")


def set_aside_and_attributed(evidence: Evidence) -> Evidence:
    once = first_with(
        evidence,
        lambda item: (
            item.content is not None
            and evidence.times_sent[item.content] == 1
            and evidence.settled.get(item.content[0]) == item.content[1]
        ),
    )
    letter = {**evidence.dead_letters[0], "partition": once.position[0], "record_offset": once.position[1]}
    return replace(evidence, dead_letters=[*evidence.dead_letters, {**letter, "reason": "judge_refused"}])


def published_otherwise(evidence: Evidence) -> Evidence:
    """One event, every copy of it, tells another's shares."""
    first = evidence.published[0]
    other = next(message for message in evidence.published if shares_told(message) != shares_told(first))
    copies = [replace(m, value=other.value) if m.value == first.value else m for m in evidence.published]
    return replace(evidence, published=copies)


def shares_told(message: Record) -> Sequence[int]:
    return [source["share_units"] for source in json.loads(message.value or b"")["sources"]]


def paid_from_an_error(evidence: Evidence) -> Evidence:
    """A support that the model never gave."""
    row = next(filter(attributed, evidence.attributions))
    told = json.loads(row["evidence"])
    told["supports"][0][0] = 5_000 if told["supports"][0][0] == 4_321 else 4_321
    told["unevidenced"] = []
    return replace(evidence, attributions=changed(evidence.attributions, {"evidence": json.dumps(told)}, attributed))


def bought_again(evidence: Evidence) -> Evidence:
    clean = {line.client_request_id for line in evidence.bill if line.fault is None}
    row = next(r for r in evidence.llm_calls if complete(r) and r["client_request_id"] in clean)
    line = next(line for line in evidence.bill if line.client_request_id == row["client_request_id"])
    later = row["finished_at"] + (row["finished_at"] - row["started_at"])
    again = {**row, "client_request_id": "again", "started_at": later, "finished_at": later}
    return replace(
        evidence,
        llm_calls=[*evidence.llm_calls, again],
        bill=[*evidence.bill, replace(line, client_request_id="again")],
    )


def moved(message: Record, **values: object) -> Record:
    return replace(message, **cast("dict[str, Any]", values))


TAMPERS: Mapping[str, Sequence[tuple[str, Tamper]]] = {
    "EveryEventTerminal": [
        ("a settled answer vanished", lambda e: replace(e, answers=without(e.answers))),
        ("a dead letter vanished", lambda e: replace(e, dead_letters=without(e.dead_letters))),
        (
            "an answer nobody sent",
            lambda e: replace(e, answers=[*e.answers, {**e.answers[0], "answer_id": "nobody's"}]),
        ),
        (
            "set aside for another reason",
            lambda e: replace(
                e, dead_letters=changed(e.dead_letters, {"reason": "too_large"}, lambda r: r["reason"] == "not_json")
            ),
        ),
        ("two outcomes", set_aside_and_attributed),
    ],
    "PersistedExactlyOnce": [
        ("an attribution twice", lambda e: replace(e, attributions=[*e.attributions, e.attributions[0]])),
        ("an attribution vanished", lambda e: replace(e, attributions=without(e.attributions))),
        ("a source's row vanished", lambda e: replace(e, source_attributions=without(e.source_attributions))),
        (
            "a source's row of another source",
            lambda e: replace(e, source_attributions=changed(e.source_attributions, {"source_id": "another"})),
        ),
    ],
    "NeverCommittedPastUnfinished": [
        ("seen to be too far", lambda e: replace(e, committed_too_far=["partition 0: committed 5"])),
        ("not everything is committed", lambda e: replace(e, committed={**e.committed, 0: e.committed[0] - 1})),
        ("more than there is is committed", lambda e: replace(e, committed={**e.committed, 0: e.committed[0] + 1})),
    ],
    "CreditConserved": [
        (
            "a share one unit too large",
            lambda e: replace(
                e,
                source_attributions=[
                    {**row, "share_units": row["share_units"] + 1}
                    if row is next(filter(paid, e.source_attributions))
                    else row
                    for row in e.source_attributions
                ],
            ),
        ),
        (
            "paid although nothing is supported",
            lambda e: replace(e, attributions=changed(e.attributions, {"status": "ungrounded"}, attributed)),
        ),
        (
            "utility not of the credits",
            lambda e: replace(
                e, attributions=changed(e.attributions, {"utility_units": 1, "residual_units": 10**12 - 1}, attributed)
            ),
        ),
        ("recomputed otherwise", lambda e: replace(e, recomputed_otherwise=["a difference"])),
        ("paid from an error", paid_from_an_error),
    ],
    "CostConserved": [
        (
            "a call nobody recorded",
            lambda e: replace(
                e, llm_calls=[row for row in e.llm_calls if row["client_request_id"] != e.bill[0].client_request_id]
            ),
        ),
        ("a call recorded twice", lambda e: replace(e, llm_calls=[*e.llm_calls, e.llm_calls[0]])),
        (
            "a call that was never billed",
            lambda e: replace(
                e,
                bill=[
                    line
                    for line in e.bill
                    if line.client_request_id != next(filter(complete, e.llm_calls))["client_request_id"]
                ],
            ),
        ),
        (
            "a token too many",
            lambda e: replace(e, llm_calls=changed(e.llm_calls, {"output_tokens": 999_999}, complete)),
        ),
        (
            "a cost a hair too small",
            lambda e: replace(e, llm_calls=changed(e.llm_calls, {"cost_usd": Decimal("0.0000000001")}, complete)),
        ),
        ("an intent left open", lambda e: replace(e, llm_calls=changed(e.llm_calls, {"outcome": "intent"}))),
        (
            "billed, and recorded as failed",
            lambda e: replace(
                e, llm_calls=changed(e.llm_calls, {"outcome": "failed", "cost_usd": Decimal(0)}, complete)
            ),
        ),
        (
            "unknown beyond its reservation",
            lambda e: replace(
                e,
                llm_calls=changed(
                    e.llm_calls, {"outcome": "unknown", "cost_usd": None, "reserved_cost_usd": Decimal(0)}, complete
                ),
            ),
        ),
        ("many responses lost", lambda e: replace(e, calls_cut_off_max=-1)),
        ("bought although it was on record", bought_again),
        ("a fault that the database finds", lambda e: replace(e, call_faults=[{"answer_id": "a-1", "fault": "twice"}])),
    ],
    "OutboxDelivered": [
        ("a message not published", lambda e: replace(e, outbox_rows=1)),
        ("a message lost", lambda e: replace(e, published=[m for m in e.published if m.value != e.published[0].value])),
        ("a message of nothing", lambda e: replace(e, attributions=without(e.attributions))),
        ("published otherwise than stored", published_otherwise),
    ],
    "DeadLettersIntact": [
        ("a row's bytes changed", lambda e: replace(e, dead_letters=changed(e.dead_letters, {"value": b"{}"}))),
        ("a row's key changed", lambda e: replace(e, dead_letters=changed(e.dead_letters, {"key": b""}))),
        ("a row's headers changed", lambda e: replace(e, dead_letters=changed(e.dead_letters, {"headers": b"x"}))),
        (
            "a message's bytes changed",
            lambda e: replace(
                e, published_dead_letters=[moved(e.published_dead_letters[0], value=b""), *e.published_dead_letters[1:]]
            ),
        ),
        (
            "a message's headers changed",
            lambda e: replace(
                e,
                published_dead_letters=[
                    moved(m, headers=(("more", b""), *m.headers)) for m in e.published_dead_letters
                ],
            ),
        ),
        ("a message lost", lambda e: replace(e, published_dead_letters=[])),
        (
            "a reason that does not exist",
            lambda e: replace(e, dead_letters=changed(e.dead_letters, {"reason": "bad_luck"})),
        ),
    ],
    "NoBugs": [("a worker crashed", lambda e: replace(e, bugs=["worker.crashed"]))],
}


def test_every_guarantee_is_shown_to_tell() -> None:
    assert set(TAMPERS) == {type(guarantee).__name__ for guarantee in GUARANTEES}


@pytest.mark.parametrize(
    ("guarantee", "tamper"),
    [pytest.param(name, tamper, id=f"{name}: {deed}") for name, deeds in TAMPERS.items() for deed, tamper in deeds],
)
def test_a_guarantee_that_is_broken_says_so(report: Report, guarantee: str, tamper: Tamper) -> None:
    asked = next(one for one in GUARANTEES if type(one).__name__ == guarantee)
    assert set(asked.violations(tamper(report.evidence))) - set(report.broken.get(guarantee, ()))
