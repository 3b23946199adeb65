"""Every hostile record and every golden example, through the whole line in one run: each ends as it should, once."""

import json
from collections import Counter
from hashlib import sha256

import pytest

from schemas.dead_letter import DeadLetterReason
from tests.guarantees.hostile.corpus import RECORDS, Case, hostile_cases
from tests.guarantees.hostile.run import ATTEMPTS_MAX, TROUBLES, Evidence, all_cases
from worker.adapters.postgres.headers import decode_headers
from worker.codec.dead_letters import KEPT_BYTES_MAX
from worker.core.model import UNIT_SCALE
from worker.core.outcome import Outcome
from worker.settings import Settings

CASES = all_cases()
SET_ASIDE = [case for case in CASES if case.outcome is Outcome.DEAD_LETTER]
SETTLED = [case for case in CASES if case.answer_key is not None and case.outcome is not Outcome.DUPLICATE]
DUPLICATES = [case for case in CASES if case.outcome is Outcome.DUPLICATE]
COPY_BYTES_MAX = Settings().dead_letters.copy_bytes_max
TOO_LARGE = [case for case in SET_ASIDE if case.size_bytes > COPY_BYTES_MAX]
WHOLE = [case for case in SET_ASIDE if case.size_bytes <= COPY_BYTES_MAX]


def name_of(case: Case) -> str:
    return case.name


def text_headers(record_headers: tuple[tuple[str, bytes | None], ...]) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record_headers if name.startswith("dlq_")}


def test_every_record_has_one_outcome_and_is_committed(evidence: Evidence) -> None:
    assert evidence.outcomes == Counter(case.outcome for case in CASES)
    assert evidence.committed == len(CASES) == max(evidence.offsets.values()) + 1
    assert len(evidence.letters) == len(evidence.dead_letter_records) == len(SET_ASIDE)
    assert len(evidence.announced) == sum(map(len, evidence.attributions.values())) == len(SETTLED)


@pytest.mark.parametrize("case", SETTLED, ids=name_of)
def test_an_answer_is_settled_once_with_its_status_and_announced(case: Case, evidence: Evidence) -> None:
    assert case.answer_key is not None
    [attribution] = evidence.attributions[case.answer_key]
    assert attribution["status"] == case.outcome.value
    paid = UNIT_SCALE if case.outcome is Outcome.ATTRIBUTED else 0
    assert (attribution["credit"] or 0, attribution["share"] or 0) == (attribution["utility_units"], paid)
    key = json.dumps([case.answer_key.tenant, case.answer_key.answer_id], separators=(",", ":")).encode()
    [announced] = [record for record in evidence.announced if record.key == key]
    message = json.loads(announced.value)
    told = (message["tenant"], message["answer_id"], message["status"])
    assert told == (case.answer_key.tenant, case.answer_key.answer_id, case.outcome.value)
    assert evidence.offsets[case.name] not in evidence.letters


@pytest.mark.parametrize("case", DUPLICATES, ids=name_of)
def test_a_duplicate_leaves_nothing_behind(case: Case, evidence: Evidence) -> None:
    assert case.answer_key is not None
    assert len(evidence.attributions[case.answer_key]) == 1
    assert evidence.offsets[case.name] not in evidence.letters


@pytest.mark.parametrize("case", SET_ASIDE, ids=name_of)
def test_a_dead_letter_says_why_in_the_table_and_on_the_topic(case: Case, evidence: Evidence) -> None:
    assert case.reason is not None
    letter = evidence.letters[evidence.offsets[case.name]]
    assert letter["reason"] == case.reason.value
    assert case.detail in letter["detail"]
    retried = case.reason in {DeadLetterReason.JUDGE_INCOMPLETE, DeadLetterReason.ATTEMPTS_EXHAUSTED}
    assert letter["attempts"] == (ATTEMPTS_MAX if retried else 1)
    record = evidence.dead_letter_records[evidence.offsets[case.name]]
    added = text_headers(record.headers)
    assert (added["dlq_reason"], added["dlq_detail"]) == (case.reason.value, letter["detail"])
    assert (added["dlq_topic"], added["dlq_partition"]) == (letter["topic"], "0")
    assert added["dlq_timestamp"] == str(letter["record_timestamp_ms"])
    assert case.timestamp_ms in {None, letter["record_timestamp_ms"]}


@pytest.mark.parametrize("case", WHOLE, ids=name_of)
def test_a_dead_letter_keeps_key_value_and_headers_untouched(case: Case, evidence: Evidence) -> None:
    letter = evidence.letters[evidence.offsets[case.name]]
    assert (letter["key"], letter["value"]) == (case.key, case.value)
    assert decode_headers(letter["headers"]) == case.headers
    record = evidence.dead_letter_records[evidence.offsets[case.name]]
    assert (record.key, record.value) == (case.key, case.value)
    assert tuple(record.headers)[: len(case.headers)] == case.headers


@pytest.mark.parametrize("case", TOO_LARGE, ids=name_of)
def test_a_record_too_large_to_copy_keeps_hash_size_and_beginning(case: Case, evidence: Evidence) -> None:
    assert case.value is not None
    letter = evidence.letters[evidence.offsets[case.name]]
    assert letter["value_hash"] == sha256(case.value).digest()
    assert letter["value_size_bytes"] == len(case.value)
    is_value_kept = len(case.value) <= COPY_BYTES_MAX
    assert letter["value"] == (case.value if is_value_kept else case.value[:KEPT_BYTES_MAX])
    assert (letter["key"], decode_headers(letter["headers"])) == (case.key, case.headers)
    record = evidence.dead_letter_records[evidence.offsets[case.name]]
    assert record.value == case.value[:KEPT_BYTES_MAX]
    assert record.key == (case.key and case.key[:KEPT_BYTES_MAX])
    added = text_headers(record.headers)
    assert added["dlq_truncated"] == "true"
    assert added["dlq_original_sha256"] == sha256(case.value).hexdigest()
    assert added["dlq_original_size_bytes"] == str(len(case.value))
    own = tuple(header for header in record.headers if not header[0].startswith("dlq_"))
    assert own == case.headers[: len(own)]


def test_a_dead_letter_that_came_back_keeps_its_first_headers_before_the_new_ones(evidence: Evidence) -> None:
    record = evidence.dead_letter_records[evidence.offsets["dead-letter-again"]]
    reasons = [value for name, value in record.headers if name == "dlq_reason"]
    assert reasons == [b"judge_refused", b"not_json"]


def test_the_corpus_holds_every_outcome_and_every_reason() -> None:
    assert {case.outcome for case in hostile_cases()} == set(Outcome)
    assert {case.reason for case in hostile_cases()} - {None} == set(DeadLetterReason)
    judges = {case.reason for case in hostile_cases() if case.name in TROUBLES}
    by_an_event_alone = {case.reason for case in hostile_cases() if case.name not in TROUBLES} - {None}
    assert by_an_event_alone == set(DeadLetterReason) - judges


def test_every_file_is_a_case_and_every_case_has_a_name_of_its_own() -> None:
    names = Counter(case.name for case in CASES)
    assert [name for name, times in names.items() if times > 1] == []
    assert {path.name.partition(".")[0] for path in RECORDS.iterdir()} - {""} <= set(names)
    assert {case.after for case in CASES} - {None} <= set(names)


def test_sizes_lie_at_the_limit_and_one_byte_above_it() -> None:
    sizes = {case.name: case.size_bytes for case in CASES}
    limit_bytes = Settings().intake.event_bytes_max
    assert (sizes["bytes-1-mebibyte"], sizes["bytes-1-mebibyte-and-1"]) == (limit_bytes, limit_bytes + 1)
    assert sizes["bytes-10-megabytes"] > 10_000_000
