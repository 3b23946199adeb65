"""Identities of calls sort by time, and are as unique as chance makes them."""

from datetime import UTC, datetime
from uuid import RFC_4122

from hypothesis import given
from hypothesis import strategies as st

from worker.calls.identity import new_call_id

MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  # of `timezones`


@given(MOMENTS)
def test_an_identity_is_a_uuid_of_version_7_that_says_its_millisecond(at: datetime) -> None:
    call_id = new_call_id(at)
    assert (call_id.version, call_id.variant) == (7, RFC_4122)
    assert call_id.int >> 80 == int(at.timestamp() * 1_000)


@given(MOMENTS, MOMENTS)
def test_identities_sort_as_the_milliseconds_they_were_made_in(one: datetime, other: datetime) -> None:
    earlier, later = sorted(int(at.timestamp() * 1_000) for at in (one, other))
    if earlier < later:
        assert new_call_id(min(one, other)) < new_call_id(max(one, other))


def test_identities_of_one_moment_differ() -> None:
    at = datetime(2026, 6, 1, tzinfo=UTC)
    assert len({new_call_id(at) for _ in range(10_000)}) == 10_000
