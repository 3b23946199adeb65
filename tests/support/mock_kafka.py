"""A Kafka cluster that can be told to misbehave: librdkafka's mock brokers, real ones over TCP, in this process.

librdkafka is the library in the wheel of `confluent-kafka`. Its mock cluster is reached by ctypes, as no Python module
offers it. It has produce, fetch, groups and commits; no topic admin, no transactions that mean anything, no files.
"""

import ctypes
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Self

ALL_BROKERS = -1
_PRODUCER = 0
_SILENT = b"0"


class Api(IntEnum):
    """Requests by their key in Kafka's protocol."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22


class Code(IntEnum):
    """Errors by their code in Kafka's protocol; the first one is librdkafka's, and closes the connection instead."""

    CONNECTION_CLOSED = -195
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    KAFKA_STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    FENCED_INSTANCE_ID = 82
    UNSTABLE_OFFSET_COMMIT = 88


class MockKafka:
    """A `Broker` of several nodes, numbered from 1. What it stores is gone when it is closed, never before."""

    name = "mock"

    def __init__(self, nodes: int = 1) -> None:
        self._library = _library()
        self._handle = _new_handle(self._library)
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._handle, nodes)
        if not self._cluster:
            raise RuntimeError("librdkafka made no mock cluster")
        self.bootstrap_servers: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        # A real broker waits for further members, which tests bring one by one.
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self._library.rd_kafka_mock_start_request_tracking(self._cluster)

    def settings_overrides(self) -> Mapping[str, object]:
        # An empty fetch is held for all of its wait: records that come meanwhile do not end it.
        return {"bootstrap_servers": self.bootstrap_servers, "fetch_max_wait_ms": 20}

    def close(self) -> None:
        if self._cluster:
            self._library.rd_kafka_mock_cluster_destroy(self._cluster)
            self._library.rd_kafka_destroy(self._handle)
            self._cluster = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What the cluster has

    def create_topic(self, topic: str, *, partitions: int = 1) -> str:
        self._call("topic_create", topic.encode(), partitions, 1)
        return topic

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """As retention does."""
        self._call("partition_delete_records", topic.encode(), partition, before)

    def lead(self, topic: str, partition: int, node: int) -> None:
        """Move the partition's leader; -1 leaves it without one."""
        self._call("partition_set_leader", topic.encode(), partition, node)

    def coordinate(self, group: str, node: int) -> None:
        """Move the group's coordinator."""
        self._call("coordinator_set", b"group", group.encode(), node)

    # How it misbehaves

    def fail(self, api: Api, *codes: Code) -> None:
        """The next requests of this kind, to whichever node, are answered with these errors, in order."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, api, len(codes), array)

    def refuse_topic(self, topic: str, code: Code) -> None:
        """What metadata says of the topic from now on."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, topic.encode(), code)

    def heal(self, api: Api) -> None:
        """Forget the errors that were not answered with yet."""
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, api)

    def answer(self, node: int, api: Api, answers: Sequence[tuple[Code, int]]) -> None:
        """The next answers of one node to requests of this kind: an error, and how late it comes in milliseconds."""
        # Variadic in C; where ints of both kinds travel alike, as on x86-64 and AArch64 Linux, ctypes can call it.
        flat = [ctypes.c_int(number) for pair in answers for number in pair]
        self._call("broker_push_request_error_rtts", node, api, ctypes.c_size_t(len(answers)), *flat)

    def unanswered(self, node: int, api: Api) -> int:
        """How many of the `answer`s given are still to come."""
        count = ctypes.c_size_t()
        self._call("broker_error_stack_cnt", node, api, ctypes.byref(count))
        return count.value

    def slow(self, round_trip_ms: int, node: int = ALL_BROKERS) -> None:
        """From now on every answer takes this long."""
        self._call("broker_set_rtt", node, round_trip_ms)

    def stop(self, node: int = ALL_BROKERS) -> None:
        """Close every connection and take no new one. The records stay."""
        self._call("broker_set_down", node)

    kill = stop

    def start(self, node: int = ALL_BROKERS) -> None:
        self._call("broker_set_up", node)

    # What it saw

    def requests(self) -> Counter[int]:
        """How many requests of each kind came, since the start."""
        count = ctypes.c_size_t()
        array = self._library.rd_kafka_mock_get_requests(self._cluster, ctypes.byref(count))
        kinds = Counter(self._library.rd_kafka_mock_request_api_key(array[index]) for index in range(count.value))
        self._library.rd_kafka_mock_request_destroy_array(array, count)
        return kinds

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, f"rd_kafka_mock_{name}")(self._cluster, *arguments)
        if code:
            raise RuntimeError(f"{name}{arguments}: {self._library.rd_kafka_err2name(code).decode()}")


def _new_handle(library: ctypes.CDLL) -> int:
    """A client that does nothing but own the cluster."""
    reason = ctypes.create_string_buffer(512)
    configuration = library.rd_kafka_conf_new()
    # What the brokers say while they are told to fail is no news.
    library.rd_kafka_conf_set(configuration, b"log_level", _SILENT, reason, len(reason))
    handle: int | None = library.rd_kafka_new(_PRODUCER, configuration, reason, len(reason))
    if not handle:
        raise RuntimeError(f"librdkafka: {reason.value.decode()}")
    return handle


@cache
def _library() -> ctypes.CDLL:
    """The wheel's own librdkafka. Raises where it is missing: a suite without it would prove less than it says."""
    spec = find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise RuntimeError("the mock cluster needs confluent-kafka, which is one of the test tools")
    site = Path(spec.origin).parent.parent
    found = sorted(site.glob("confluent_kafka.libs/librdkafka*")) + sorted(site.glob("confluent_kafka/.dylibs/librdk*"))
    if not found:
        raise RuntimeError(f"no librdkafka beside {spec.origin}: its wheel is needed, not a build of one's own")
    library = ctypes.CDLL(str(found[0]))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, f"rd_kafka_{name}")
        function.restype = result
        if arguments is not None:
            function.argtypes = arguments
    return library


_pointer, _int, _size, _text = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p
_SIGNATURES: Mapping[str, tuple[object, list[object] | None]] = {
    "conf_new": (_pointer, []),
    "conf_set": (_int, [_pointer, _text, _text, _text, _size]),
    "new": (_pointer, [_int, _pointer, _text, _size]),
    "destroy": (None, [_pointer]),
    "err2name": (_text, [_int]),
    "mock_cluster_new": (_pointer, [_pointer, _int]),
    "mock_cluster_destroy": (None, [_pointer]),
    "mock_cluster_bootstraps": (_text, [_pointer]),
    "mock_group_initial_rebalance_delay_ms": (None, [_pointer, ctypes.c_int32]),
    "mock_topic_create": (_int, [_pointer, _text, _int, _int]),
    "mock_topic_set_error": (None, [_pointer, _text, _int]),
    "mock_partition_delete_records": (_int, [_pointer, _text, ctypes.c_int32, ctypes.c_int64]),
    "mock_partition_set_leader": (_int, [_pointer, _text, ctypes.c_int32, ctypes.c_int32]),
    "mock_coordinator_set": (_int, [_pointer, _text, _text, ctypes.c_int32]),
    "mock_push_request_errors_array": (None, [_pointer, ctypes.c_int16, _size, ctypes.POINTER(_int)]),
    "mock_clear_request_errors": (None, [_pointer, ctypes.c_int16]),
    # The fixed part; ctypes passes what follows as it comes.
    "mock_broker_push_request_error_rtts": (_int, [_pointer, ctypes.c_int32, ctypes.c_int16, _size]),
    "mock_broker_error_stack_cnt": (_int, [_pointer, ctypes.c_int32, ctypes.c_int16, ctypes.POINTER(_size)]),
    "mock_broker_set_rtt": (_int, [_pointer, ctypes.c_int32, _int]),
    "mock_broker_set_down": (_int, [_pointer, ctypes.c_int32]),
    "mock_broker_set_up": (_int, [_pointer, ctypes.c_int32]),
    "mock_start_request_tracking": (None, [_pointer]),
    "mock_get_requests": (ctypes.POINTER(_pointer), [_pointer, ctypes.POINTER(_size)]),
    "mock_request_api_key": (ctypes.c_int16, [_pointer]),
    "mock_request_destroy_array": (None, [ctypes.POINTER(_pointer), _size]),
}
