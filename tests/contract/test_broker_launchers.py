"""What every broker launcher promises, asked of each: it serves, it is private, and it leaves nothing."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psutil
import pytest
from aiokafka import AIOKafkaConsumer

from tests.support.brokers import TEST_PROPERTIES
from tests.support.kafka import committed, consume, create_topic, produce
from worker.embedded import server
from worker.embedded.apache_kafka import ApacheKafka
from worker.embedded.failure import LaunchError
from worker.embedded.loopback import HOST, answers_kafka, free_port, is_free
from worker.embedded.tansu import EmbeddedBroker
from worker.settings import KafkaSettings

Launcher = ApacheKafka | EmbeddedBroker
DEADLINE_S = 30
LAUNCHERS = [pytest.param("apache", marks=pytest.mark.kafka), "embedded"]


def launcher_named(name: str) -> Launcher:
    return ApacheKafka(properties=TEST_PROPERTIES) if name == "apache" else EmbeddedBroker()


@pytest.fixture(scope="module", params=LAUNCHERS)
def shared_launcher(request: pytest.FixtureRequest) -> Iterator[Launcher]:
    with launcher_named(request.param) as launcher:
        yield launcher


@pytest.fixture
def launcher(shared_launcher: Launcher) -> Launcher:
    """Running, whatever the test before did to it."""
    shared_launcher.start()
    return shared_launcher


@contextmanager
def listener() -> Iterator[int]:
    """Somebody else's server, and its port."""
    with socket.create_server((HOST, 0)) as other:
        port: int = other.getsockname()[1]
        yield port


def process_of(launcher: Launcher) -> psutil.Process:
    assert launcher.pid is not None
    return psutil.Process(launcher.pid)


async def records_taken_by_a_member(launcher: Launcher, topic: str, count: int) -> list[bytes]:
    """Join the group, take `count` records, commit them, leave."""
    settings = KafkaSettings.model_validate(launcher.settings_overrides())
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=launcher.bootstrap_servers,
        group_id=f"{topic}.group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=settings.session_timeout_ms,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        fetch_max_wait_ms=settings.fetch_max_wait_ms,
    )
    await consumer.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            values = [(await consumer.getone()).value for _ in range(count)]
        await consumer.commit()
        return values
    finally:
        await consumer.stop()


async def test_a_member_that_rejoins_goes_on_from_its_commit(launcher: Launcher, topics_prefix: str) -> None:
    topic = await create_topic(launcher, topics_prefix)
    await produce(launcher, topic, [b"1", b"2", b"3"])

    assert await records_taken_by_a_member(launcher, topic, 2) == [b"1", b"2"]
    assert await records_taken_by_a_member(launcher, topic, 1) == [b"3"]
    assert await committed(launcher, f"{topic}.group", topic) == 3


async def test_keys_headers_and_tombstones_arrive_untouched(launcher: Launcher, topics_prefix: str) -> None:
    topic = await create_topic(launcher, topics_prefix)
    headers = [("traceparent", b"00-\xff"), ("again", b"1"), ("again", b"2")]
    await produce(launcher, topic, [b"\x00\xff", None], key=b"k", headers=headers)

    records = await consume(launcher, topic, 2)

    assert [(record.key, record.value, list(record.headers)) for record in records] == [
        (b"k", b"\x00\xff", headers),
        (b"k", None, headers),
    ]


def test_it_listens_on_the_loopback_interface_only(launcher: Launcher) -> None:
    listening = [
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in process_of(launcher).net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert set(listening) == {HOST}


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_an_ended_broker_leaves_no_process_and_an_unused_port(launcher: Launcher, how: str) -> None:
    process = process_of(launcher)

    getattr(launcher, how)()

    assert not process.is_running()
    assert is_free(launcher.port)
    assert launcher.pid is None


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_broker_starts_again_on_its_port_with_what_it_keeps(
    launcher: Launcher, topics_prefix: str, how: str
) -> None:
    before = launcher.bootstrap_servers
    topic = await create_topic(launcher, topics_prefix)
    await produce(launcher, topic, [b"1", b"2"])
    assert await records_taken_by_a_member(launcher, topic, 1) == [b"1"]

    getattr(launcher, how)()
    launcher.start()

    assert launcher.bootstrap_servers == before
    if isinstance(launcher, EmbeddedBroker):
        topic = await create_topic(launcher, topics_prefix)
        await produce(launcher, topic, [b"2"])
    assert await records_taken_by_a_member(launcher, topic, 1) == [b"2"]


def test_starting_a_running_broker_changes_nothing(launcher: Launcher) -> None:
    before = launcher.pid
    launcher.start()
    assert launcher.pid == before


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_port_that_is_taken_meanwhile_is_given_up_for_another(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with listener() as taken:
        offered = [taken, *(free_port() for _ in range(5))]
        monkeypatch.setattr(server, "free_port", lambda: offered.pop(0))

        with launcher_named(name) as launcher:
            assert launcher.port != taken
            assert answers_kafka(launcher.port)


def test_a_failing_start_shows_what_the_broker_said_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with listener() as taken:
        monkeypatch.setattr(server, "free_port", lambda: taken)
        broker = EmbeddedBroker()

        with pytest.raises(LaunchError, match="Address in use"):
            broker.start()

    assert broker.pid is None


@pytest.mark.parametrize("use", ["stop", "kill"])
def test_a_broker_that_never_started_says_so(use: str) -> None:
    with pytest.raises(LaunchError, match="not started"):
        getattr(EmbeddedBroker(), use)()
    with pytest.raises(LaunchError, match="not been started"):
        _ = EmbeddedBroker().bootstrap_servers


def test_closing_twice_is_closing_once() -> None:
    broker = EmbeddedBroker()
    broker.start()
    with closing(broker):
        broker.close()
    assert broker.pid is None
