"""The main line over TLS and SCRAM with ACLs: the least rights that do, and what each missing one says."""

import base64
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.integration.security.conftest import WORKER, SecuredKafka
from tests.integration.security.grants import grant, rights_of_a_worker
from tests.support import lines
from worker.adapters.kafka.connection import connection_options
from worker.adapters.kafka.consumer import KafkaRecordStream
from worker.adapters.kafka.producer import KafkaPublisher
from worker.app import check_topics, ensure_topics, publish
from worker.core.outcome import Outcome
from worker.core.records import OutboundMessage, TopicPartition
from worker.embedded.authority import Authority
from worker.errors import FatalError
from worker.settings import KafkaSettings, Settings

pytestmark = pytest.mark.postgres

POISON = b"\x00 no event"


@dataclass(frozen=True)
class Roles:
    """The same deployment, as its administrator and as a worker see it."""

    admin: Settings
    worker: Settings


@pytest.fixture
async def roles(secured_kafka: SecuredKafka, postgres_dsn: str, topics_prefix: str) -> Roles:
    """Topics are there, and the worker has no right yet."""
    kafka = {"partitions": 1, "request_timeout_ms": 5_000}
    admin = lines.settings_of(secured_kafka.broker, postgres_dsn, topics_prefix, kafka=kafka)
    await ensure_topics(admin)
    return Roles(admin, admin.overridden({"kafka": secured_kafka.security.settings_of(WORKER)}))


async def put_in(roles: Roles, count: int, *others: bytes) -> None:
    values = [*lines.events(lines.answers(count)), *others]
    await publish(roles.admin, [OutboundMessage(roles.admin.kafka.answers_topic, b"k", value) for value in values])


async def test_a_worker_with_its_least_rights_does_all_of_its_work(roles: Roles, postgres_dsn: str) -> None:
    await grant(roles.admin.kafka, WORKER, rights_of_a_worker(roles.admin.kafka))
    await put_in(roles, 5, POISON)
    summary = await lines.run_until_drained(roles.worker)
    assert summary.outcomes == {Outcome.ATTRIBUTED: 5, Outcome.DEAD_LETTER: 1}
    assert await lines.value(postgres_dsn, "SELECT count(*) FROM outbox") == 0, "both topics have what they are due"
    await put_in(roles, 0, b"not json")
    summary = await lines.run_until_drained(roles.worker)
    assert summary.outcomes == {Outcome.DEAD_LETTER: 1}, "offsets were committed"


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        (0, r"TopicAuthorizationFailedError.*\.answers"),
        (1, r"GroupAuthorizationFailedError"),
        (2, r"TopicAuthorizationFailedError.*\.attributions"),
        (3, r"TopicAuthorizationFailedError.*\.dead-letter"),
    ],
    ids=["read answers", "read group", "write attributions", "write dead letters"],
)
async def test_a_missing_right_stops_the_worker_with_its_name(roles: Roles, missing: int, named: str) -> None:
    rights = list(rights_of_a_worker(roles.admin.kafka))
    del rights[missing]
    await grant(roles.admin.kafka, WORKER, rights)
    await put_in(roles, 2, POISON)
    with pytest.raises(FatalError, match=named) as stopped:
        await lines.run_until_drained(roles.worker)
    assert "grant it to this worker's principal" in str(stopped.value)


async def test_a_worker_may_do_nothing_else(roles: Roles) -> None:
    kafka = roles.worker.kafka
    await grant(roles.admin.kafka, WORKER, rights_of_a_worker(kafka))
    async with KafkaPublisher(kafka) as publisher:
        with pytest.raises(FatalError, match="TopicAuthorizationFailed"):
            await publisher.publish([OutboundMessage(kafka.answers_topic, None, b"a made-up answer")])
    for other in ({"answers_topic": kafka.attributions_topic}, {"group_id": f"{kafka.group_id}.other"}):
        with pytest.raises(FatalError, match="AuthorizationFailed"):
            await read_something(kafka.model_copy(update=other))
    async with admin_client(kafka) as client:
        made = await client.create_topics([NewTopic(f"{kafka.answers_topic}.new", 1, 1)])
        gone = await client.delete_topics([kafka.attributions_topic])
    assert [code for _, code, *_ in made.topic_errors] == [29]
    assert [code for _, code in gone.topic_error_codes] == [29]


class NoListener:
    """What comes and goes is of no interest."""

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None: ...

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None: ...


async def read_something(kafka: KafkaSettings) -> None:
    stream = KafkaRecordStream(kafka)
    try:
        await stream.start(NoListener())
        for _ in range(20):
            await stream.fetch(records_max=1, timeout_ms=200)
    finally:
        await stream.stop()


@asynccontextmanager
async def admin_client(kafka: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(**connection_options(kafka))
    await client.start()
    yield client
    await client.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
async def test_a_wrong_password_stops_every_client_and_is_named(roles: Roles, mechanism: str) -> None:
    """aiokafka itself says "Unable to bootstrap", and the reason to its log alone."""
    wrong = {"sasl_password": "geheim", "sasl_mechanism": mechanism}
    settings = roles.worker.overridden({"kafka": wrong})
    told = []
    with pytest.raises(FatalError, match=r"does not let us in.*kafka\.sasl_password") as refused:
        await check_topics(settings)
    told.append(str(refused.value))
    with pytest.raises(FatalError, match="does not let us in") as refused:
        await read_something(settings.kafka)
    told.append(str(refused.value))
    with pytest.raises(FatalError, match="does not let us in") as refused:
        await publish(settings, [OutboundMessage(settings.kafka.attributions_topic, None, b"")])
    told.append(str(refused.value))
    assert "geheim" not in " ".join(told)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
async def test_every_mechanism_with_a_password_lets_in(
    roles: Roles, secured_kafka: SecuredKafka, mechanism: str
) -> None:
    log_in = secured_kafka.security.settings_of("admin", mechanism)
    reports = await check_topics(roles.admin.overridden({"kafka": log_in}))
    assert len(reports) == 3


async def test_a_token_from_a_file_lets_in(roles: Roles, tmp_path: Path) -> None:
    token = tmp_path / "token"
    kafka = roles.admin.kafka.model_dump(exclude={"sasl_username", "sasl_password"}, exclude_unset=True)
    kafka |= {"sasl_mechanism": "OAUTHBEARER", "sasl_token_file": token}
    settings = Settings(kafka=KafkaSettings(**kafka))
    token.write_text(unsigned_token("admin") + "\n")
    assert len(await check_topics(settings)) == 3
    token.write_text("no token")
    with pytest.raises(FatalError, match="does not let us in"):
        await check_topics(settings)


def unsigned_token(subject: str) -> str:
    """What Kafka's validator for development takes."""
    parts = ({"alg": "none"}, {"sub": subject, "iat": 1_700_000_000, "exp": 4_000_000_000})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


async def test_a_broker_of_another_authority_is_not_trusted(roles: Roles, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)
    settings = roles.worker.overridden({"kafka": {"ssl_ca_file": stranger.ca_file}})
    with pytest.raises(FatalError, match=r"no TLS with the broker.*CERTIFICATE_VERIFY_FAILED.*kafka\.ssl_ca_file"):
        await check_topics(settings)
