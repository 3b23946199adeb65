import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.dead_letter import REPLAY_HEADER, REPLAYS_MAX, DeadLetterReason
from tests.support import samples
from worker.codec import decode_answer, decode_dead_letter, encode_dead_letter
from worker.codec.replays import replayed_headers, replays_of
from worker.core.records import Headers, Record
from worker.settings import IntakeSettings

HEADERS = st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=9))).map(tuple)


@given(headers=HEADERS, replays=st.integers(min_value=1, max_value=REPLAYS_MAX))
def test_each_replay_counts_one_more_and_leaves_the_other_headers_as_they_are(headers: Headers, replays: int) -> None:
    own = tuple(header for header in headers if header[0] != REPLAY_HEADER)
    again = own
    for _ in range(replays):
        again = replayed_headers(again)
    assert replays_of(again) == replays
    assert again == (*own, (REPLAY_HEADER, str(replays).encode()))


@pytest.mark.parametrize("told", [b"", b"-1", b"1e3", b"101", b"9" * 5_000, "²".encode(), b" 1", b"\xff"])
def test_a_count_that_no_replay_of_ours_wrote_opens_no_budget_of_attempts(told: bytes) -> None:
    assert replays_of(((REPLAY_HEADER, told),)) == 0


def test_the_count_survives_a_replay_that_is_set_aside_again() -> None:
    record = Record("answers", 0, 7, 1, b"k", b"v", replayed_headers(((REPLAY_HEADER, b"1"), ("trace", b"\xff"))))
    letter = encode_dead_letter(
        record,
        reason=DeadLetterReason.JUDGE_INCOMPLETE,
        detail="no verdict",
        attempts=1,
        topic="answers.dead-letter",
        copy_bytes_max=1_000,
        code_version="test",
    )
    assert replays_of(decode_dead_letter(letter).record.headers) == 2


def test_an_answer_knows_how_often_its_record_was_replayed() -> None:
    record = samples.record_of(samples.answer())
    replayed = Record("answers", 0, 0, 0, record.key, record.value, replayed_headers(()))
    limits, now = IntakeSettings(), samples.OCCURRED_AT
    assert decode_answer(record, limits=limits, now=now).answer.replays == 0
    assert decode_answer(replayed, limits=limits, now=now).answer.replays == 1
