"""What the Kafka client says, in the worker's errors; and that an error costs no record."""

import ssl
from collections.abc import Mapping, Sequence

import pytest
from aiokafka import ConsumerRecord, TopicPartition, errors

from worker.adapters.kafka.connection import translated_errors
from worker.adapters.kafka.consumer import KafkaRecordStream
from worker.core.records import Record
from worker.errors import FatalError, UnavailableError
from worker.settings import KafkaSettings


@pytest.mark.parametrize(
    "said",
    [
        errors.KafkaConnectionError("no route"),
        errors.NodeNotReadyError("node 1"),
        errors.RequestTimedOutError(),
        errors.CommitFailedError("rebalanced"),
        errors.IllegalStateError("not assigned"),
        errors.RebalanceInProgressError(),
        errors.UnknownMemberIdError(),
        errors.NotEnoughReplicasError(),
        # aiokafka#1115: the consumer died of it, though it passes.
        errors.KafkaStorageError(),
        errors.KafkaTimeoutError(),
        ConnectionResetError("peer"),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_passes_is_unavailable(said: Exception) -> None:
    with pytest.raises(UnavailableError, match=f"asking: {type(said).__name__}"), translated_errors("asking"):
        raise said


def test_tls_that_broke_off_is_an_outage() -> None:
    with pytest.raises(UnavailableError), translated_errors("asking"):
        raise ssl_error("UNEXPECTED_EOF_WHILE_READING")


def ssl_error(reason: str) -> ssl.SSLError:
    """As OpenSSL's come: the reason is an attribute of its own."""
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (errors.TopicAuthorizationFailedError("answers"), "no access: TopicAuthorizationFailedError.*answers"),
        (errors.GroupAuthorizationFailedError("workers"), "no access: GroupAuthorizationFailedError.*workers"),
        (errors.SaslAuthenticationFailed(), r"does not let us in.*kafka\.sasl_password"),
        (errors.UnsupportedSaslMechanismError(), r"does not let us in.*kafka\.sasl_mechanism"),
        (ssl_error("CERTIFICATE_VERIFY_FAILED"), r"no TLS with the broker.*kafka\.ssl_ca_file"),
        (ssl_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"), "no TLS with the broker"),
        (errors.OffsetOutOfRangeError({TopicPartition("answers", 3): 17}), "would skip records.*partition=3.*17"),
        (errors.RecordTooLargeError("at 5"), "would skip records"),
        (errors.CorruptRecordException(), "would skip records"),
        (errors.InvalidSessionTimeoutError(), "refused for good: InvalidSessionTimeoutError"),
        (errors.UnsupportedCodecError("no zstd"), "refused for good: UnsupportedCodecError: .*no zstd"),
        (errors.MessageSizeTooLargeError(), "refused for good"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_lasts_is_fatal_and_names_its_cause(said: Exception, told: str) -> None:
    with pytest.raises(FatalError, match=f"asking: .*{told}"), translated_errors("asking"):
        raise said


def test_a_bug_stays_a_bug() -> None:
    with pytest.raises(KeyError), translated_errors("asking"):
        raise KeyError("bug")


class Background:
    def done(self) -> bool:
        return self.ended

    ended = False


class ScriptedClient:
    """As much of aiokafka's consumer as a fetch uses; each partition brings what its script says."""

    def __init__(self, script: Mapping[int, Sequence[Sequence[int] | Exception]]) -> None:
        self._script = {number: list(steps) for number, steps in script.items()}
        self._fetcher = self._coordinator = self
        self._fetch_task, self._coordination_task = Background(), Background()
        self._heartbeat_task = self._commit_refresh_task = None
        self.sought: list[TopicPartition] = []

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition("answers", number) for number in self._script}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(self._script)

    def paused(self) -> set[TopicPartition]:
        return set()

    def highwater(self, partition: TopicPartition) -> None:
        return None

    async def seek_to_beginning(self, partition: TopicPartition) -> None:
        self.sought.append(partition)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int, max_records: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        for partition in partitions or sorted(self.assignment()):
            if self._script[partition.partition]:
                step = self._script[partition.partition].pop(0)
                if isinstance(step, Exception):
                    raise step
                return {partition: [a_record(partition, offset) for offset in step[:max_records]]}
        return {}


def a_record(partition: TopicPartition, offset: int) -> ConsumerRecord:
    return ConsumerRecord(*partition, offset, 0, 0, None, b"", None, -1, 0, ())


def stream_of(client: ScriptedClient) -> KafkaRecordStream:
    stream = KafkaRecordStream(KafkaSettings())
    stream._client = client
    return stream


async def test_records_taken_before_an_error_are_handed_out_before_it_is_raised() -> None:
    """Their position has moved: dropped here, they would never be read, and be committed past."""
    stream = stream_of(ScriptedClient({0: [errors.OffsetOutOfRangeError({0: 9})], 1: [[5]], 2: [[7]]}))

    fetched = await stream.fetch(records_max=10, timeout_ms=0)

    assert [(record.partition, record.offset) for record in fetched] == [(1, 5), (2, 7)]
    with pytest.raises(FatalError, match="would skip records"):
        await stream.fetch(records_max=10, timeout_ms=0)


async def test_a_passing_error_loses_no_record() -> None:
    stream = stream_of(ScriptedClient({0: [[5], [6]], 1: [errors.KafkaStorageError()], 2: [[7], [8]]}))

    fetched: list[Record] = []
    failures = 0
    for _ in range(6):
        try:
            fetched += await stream.fetch(records_max=10, timeout_ms=0)
        except UnavailableError:
            failures += 1

    assert sorted((record.partition, record.offset) for record in fetched) == [(0, 5), (0, 6), (2, 7), (2, 8)]
    assert failures == 1


async def test_only_a_partition_without_commits_starts_at_the_beginning() -> None:
    partition = TopicPartition("answers", 1)
    client = ScriptedClient({0: [[5]], 1: [errors.NoOffsetForPartitionError(partition), [0]]})
    stream = stream_of(client)

    fetched = [record for _ in range(4) for record in await stream.fetch(records_max=10, timeout_ms=0)]

    assert client.sought == [partition]
    assert sorted((record.partition, record.offset) for record in fetched) == [(0, 5), (1, 0)]


async def test_a_client_whose_background_task_died_is_noticed() -> None:
    """aiokafka#764, #983: reading went on returning nothing, for ever."""
    client = ScriptedClient({0: []})
    stream = stream_of(client)
    assert await stream.fetch(records_max=1, timeout_ms=0) == []

    client._fetch_task.ended = True

    with pytest.raises(FatalError, match="background task has ended"):
        await stream.fetch(records_max=1, timeout_ms=0)
