"""What runs next, and how much at once."""

import hypothesis.strategies as st
from hypothesis import given

from worker.core.intake import FetchedRecord, Intake
from worker.core.offsets import Ticket
from worker.core.records import Record, TopicPartition

RECORDS_MAX = 5
BYTES_MAX = 100


def fetched(partition: int, offset: int, size_bytes: int = 1, epoch: int = 1) -> FetchedRecord:
    record = Record("answers", partition, offset, 0, None, b"")
    return FetchedRecord(record, Ticket(record.topic_partition, epoch, offset), size_bytes)


def intake_with(*waiting: FetchedRecord) -> Intake:
    intake = Intake(records_max=RECORDS_MAX, bytes_max=BYTES_MAX)
    for record in waiting:
        intake.add(record)
    return intake


def taken(intake: Intake) -> list[tuple[int, int]]:
    order = []
    while (record := intake.take()) is not None:
        order.append((record.record.partition, record.record.offset))
    return order


def test_partitions_take_turns_and_each_keeps_its_order() -> None:
    intake = intake_with(*(fetched(0, offset) for offset in range(3)), fetched(1, 7), fetched(2, 9))

    assert taken(intake) == [(0, 0), (1, 7), (2, 9), (0, 1), (0, 2)]


def test_a_large_record_is_not_overtaken_by_small_ones() -> None:
    small, large, later = fetched(0, 0, 10), fetched(1, 0, 95), fetched(0, 1, 10)
    intake = intake_with(small, large, later)

    assert taken(intake) == [(0, 0)]
    intake.finish(small)
    assert taken(intake) == [(1, 0)]
    intake.finish(large)
    assert taken(intake) == [(0, 1)]


def test_a_record_larger_than_the_bound_runs_alone() -> None:
    """logstash-input-kafka#285: one oversized record stopped its partition for ever."""
    huge, small = fetched(0, 0, BYTES_MAX * 3), fetched(1, 0, 1)
    intake = intake_with(huge, small)

    assert taken(intake) == [(0, 0)]
    assert intake.records_wanted == 0
    intake.finish(huge)
    assert taken(intake) == [(1, 0)]


def test_records_waiting_count_as_held() -> None:
    """parallel-consumer#832: what waited was not counted in back-pressure, until memory ended."""
    intake = intake_with(fetched(0, 0), fetched(0, 1))

    assert intake.records_wanted == RECORDS_MAX - 2
    intake.add(fetched(0, 2, BYTES_MAX))
    assert intake.records_wanted == 0


def test_dropping_a_partition_forgets_what_waits_and_not_what_runs() -> None:
    running = fetched(0, 0, 10)
    intake = intake_with(running, fetched(0, 1, 20), fetched(1, 5, 30))
    intake.take()

    assert intake.drop([TopicPartition("answers", 0)]) == 1

    assert (intake.records_running, intake.records_waiting, intake.bytes_held) == (1, 1, 40)
    assert intake.is_running_on([(TopicPartition("answers", 0), 1)])
    intake.finish(running)
    assert not intake.is_running_on([(TopicPartition("answers", 0), 1)])


def test_a_record_of_an_older_epoch_does_not_count_as_running_in_the_newer_one() -> None:
    intake = intake_with(fetched(0, 0, epoch=1))
    intake.take()

    assert not intake.is_running_on([(TopicPartition("answers", 0), 2)])


@given(
    st.lists(st.tuples(st.sampled_from(["fetch", "take", "finish", "drop"]), st.integers(0, 2), st.integers(1, 130)))
)
def test_the_bounds_hold_whatever_happens(events: list[tuple[str, int, int]]) -> None:
    intake = Intake(records_max=RECORDS_MAX, bytes_max=BYTES_MAX)
    running: list[FetchedRecord] = []
    waiting: list[FetchedRecord] = []
    for offset, (event, partition, size_bytes) in enumerate(events):
        if event == "fetch" and intake.records_wanted:
            assert intake.bytes_held < BYTES_MAX
            waiting.append(fetched(partition, offset, size_bytes))
            intake.add(waiting[-1])
        elif event == "take" and (record := intake.take()) is not None:
            waiting.remove(record)
            running.append(record)
        elif event == "finish" and running:
            intake.finish(running.pop(size_bytes % len(running)))
        elif event == "drop":
            intake.drop([TopicPartition("answers", partition)])
            waiting = [record for record in waiting if record.record.partition != partition]

        assert intake.records_held == len(running) + len(waiting) <= RECORDS_MAX
        assert intake.bytes_held == sum(record.size_bytes for record in [*running, *waiting])
        assert intake.bytes_running <= BYTES_MAX or len(running) == 1
