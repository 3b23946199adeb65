"""The offset tracker against the public bugs of its kind."""

import pytest

from worker.core.offsets import OffsetTracker, Ticket
from worker.core.records import TopicPartition

ANSWERS = TopicPartition("answers", 0)
OTHER = TopicPartition("answers", 1)


def tracker_with(*offsets: int) -> tuple[OffsetTracker, dict[int, Ticket]]:
    tracker = OffsetTracker()
    tracker.assign([ANSWERS])
    return tracker, {offset: add(tracker, offset) for offset in offsets}


def add(tracker: OffsetTracker, offset: int, partition: TopicPartition = ANSWERS, now_s: float = 0.0) -> Ticket:
    ticket = tracker.add(partition, offset, now_s)
    assert ticket is not None
    return ticket


def committable(tracker: OffsetTracker) -> dict[TopicPartition, int]:
    return {partition: offset for partition, _, offset in tracker.committable()}


def test_nothing_is_committable_while_the_first_record_fetched_is_unfinished() -> None:
    """faust#312: the low-water mark started from min(acked), past the missing head."""
    tracker, tickets = tracker_with(10, 11, 12)

    tracker.complete(tickets[11])
    tracker.complete(tickets[12])

    assert committable(tracker) == {}
    tracker.complete(tickets[10])
    assert committable(tracker) == {ANSWERS: 13}


def test_records_completed_out_of_order_commit_only_up_to_the_first_unfinished_one() -> None:
    """faust#606: the same class again, with two records at once."""
    tracker, tickets = tracker_with(0, 1, 2, 3)

    tracker.complete(tickets[1])
    tracker.complete(tickets[0])
    tracker.complete(tickets[3])

    assert committable(tracker) == {ANSWERS: 2}


def test_commits_go_on_over_the_holes_of_a_compacted_topic() -> None:
    """faust#401: +1 arithmetic waited for ever for offsets that the log no longer has."""
    tracker, tickets = tracker_with(5, 9, 100)

    for ticket in tickets.values():
        tracker.complete(ticket)

    assert committable(tracker) == {ANSWERS: 101}


def test_a_record_delivered_twice_is_tracked_once() -> None:
    """faust#625: a second entry of one offset in the acked list stopped all commits."""
    tracker, tickets = tracker_with(0, 1)
    tracker.complete(tickets[1])

    assert tracker.add(ANSWERS, 0, 0.0) is None
    assert tracker.add(ANSWERS, 1, 0.0) is None
    tracker.complete(tickets[0])
    tracker.complete(tickets[0])

    assert committable(tracker) == {ANSWERS: 2}
    assert tracker.add(ANSWERS, 0, 0.0) is None


def test_a_reassignment_leaves_no_gap_of_the_assignment_before() -> None:
    """faust#596: registered offsets outlived their queue, and nothing could ever complete them."""
    tracker, tickets = tracker_with(0, 1, 2)
    tracker.complete(tickets[1])

    tracker.revoke([ANSWERS])
    tracker.assign([ANSWERS])
    tracker.complete(add(tracker, 0))

    assert committable(tracker) == {ANSWERS: 1}


def test_fetching_alone_makes_nothing_committable() -> None:
    """parallel-consumer#826: the highest offset seen, updated at the poll, was committed on close."""
    tracker, _ = tracker_with(0, 1, 2)

    assert committable(tracker) == {}


def test_a_completion_of_an_older_epoch_completes_nothing_at_the_same_offset() -> None:
    """parallel-consumer#875: a stale container at a reused offset made the record count as done."""
    tracker, stale = tracker_with(7)
    tracker.assign([ANSWERS])
    fresh = add(tracker, 7)

    tracker.complete(stale[7])

    assert committable(tracker) == {}
    tracker.complete(fresh)
    assert committable(tracker) == {ANSWERS: 8}


def test_a_revoked_partition_commits_nothing_whatever_completes_later() -> None:
    """zio-kafka#590: the old owner went on committing, and offsets went up and down."""
    tracker, tickets = tracker_with(0)

    tracker.revoke([ANSWERS])
    tracker.complete(tickets[0])

    assert committable(tracker) == {}


def test_what_completed_before_the_fence_is_still_committable_before_it() -> None:
    """posthog#80897: fencing before draining threw away finished offsets, and a message was sent twice."""
    tracker, tickets = tracker_with(0, 1)
    tracker.complete(tickets[0])

    assert committable(tracker) == {ANSWERS: 1}
    tracker.revoke([ANSWERS])
    assert committable(tracker) == {}


def test_revoking_one_partition_leaves_the_others_committable() -> None:
    """posthog#80897: the fence was global."""
    tracker = OffsetTracker()
    tracker.assign([ANSWERS, OTHER])
    tickets = [add(tracker, 3, ANSWERS), add(tracker, 4, OTHER)]

    tracker.revoke([ANSWERS])
    for ticket in tickets:
        tracker.complete(ticket)

    assert committable(tracker) == {OTHER: 5}


def test_a_commit_loop_that_outlives_the_assignment_has_nothing_to_commit() -> None:
    """sentry#95753: the commit thread committed partitions that had been revoked."""
    tracker, tickets = tracker_with(0)
    tracker.complete(tickets[0])
    on_its_way = tracker.committable()

    tracker.revoke([ANSWERS])
    tracker.mark_committed(on_its_way)

    assert committable(tracker) == {}
    assert tracker.states() == {}


def test_a_late_answer_to_a_commit_does_not_count_for_the_next_epoch() -> None:
    """alpakka-kafka#755: offsets were skipped when a partition came back to the same member."""
    tracker, tickets = tracker_with(0)
    tracker.complete(tickets[0])
    on_its_way = tracker.committable()
    tracker.assign([ANSWERS])
    tracker.complete(add(tracker, 0))

    tracker.mark_committed(on_its_way)

    assert committable(tracker) == {ANSWERS: 1}


def test_a_failed_commit_is_due_again() -> None:
    """aiokafka#929: a commit that failed was never tried again."""
    tracker, tickets = tracker_with(0)
    tracker.complete(tickets[0])

    first = tracker.committable()

    assert tracker.committable() == first
    tracker.mark_committed(first)
    assert tracker.committable() == []


def test_an_older_commit_answered_late_moves_nothing_back() -> None:
    tracker, tickets = tracker_with(0, 1)
    tracker.complete(tickets[0])
    older = tracker.committable()
    tracker.complete(tickets[1])
    newer = tracker.committable()

    tracker.mark_committed(newer)
    tracker.mark_committed(older)

    assert tracker.committable() == []
    assert tracker.states()[ANSWERS].committed == 2


def test_a_record_that_arrives_behind_later_ones_is_refused_loudly() -> None:
    """Were it taken for a redelivery, it would never run, and be committed all the same."""
    tracker, tickets = tracker_with(10, 12)
    tracker.complete(tickets[10])

    with pytest.raises(ValueError, match="offset 11 arrived after 12"):
        tracker.add(ANSWERS, 11, 0.0)
    with pytest.raises(ValueError, match="offset 9 arrived after 12"):
        tracker.add(ANSWERS, 9, 0.0)


def test_a_record_of_a_partition_that_is_not_assigned_is_refused_loudly() -> None:
    tracker, _ = tracker_with()

    with pytest.raises(KeyError):
        tracker.add(OTHER, 0, 0.0)


def test_the_oldest_unfinished_record_is_found_over_all_partitions() -> None:
    """faust#458: one hung record held back its partition, and nothing showed it."""
    tracker = OffsetTracker()
    tracker.assign([ANSWERS, OTHER])
    assert tracker.oldest_unfinished_since_s() is None
    first = add(tracker, 0, ANSWERS, now_s=5.0)
    second = add(tracker, 1, ANSWERS, now_s=6.0)
    hung = add(tracker, 0, OTHER, now_s=7.0)

    assert tracker.oldest_unfinished_since_s() == 5.0
    tracker.complete(second)
    assert tracker.oldest_unfinished_since_s() == 5.0
    tracker.complete(first)
    assert tracker.oldest_unfinished_since_s() == 7.0
    tracker.complete(hung)
    assert tracker.oldest_unfinished_since_s() is None


def test_the_state_of_a_partition_shows_what_is_fetched_unfinished_committable_and_committed() -> None:
    tracker, tickets = tracker_with(3, 4, 8)
    tracker.complete(tickets[3])
    tracker.mark_committed(tracker.committable())
    tracker.complete(tickets[8])

    state = tracker.states()[ANSWERS]

    assert (state.fetched, state.unfinished, state.committable, state.committed) == (8, 1, 4, 4)
