"""The three topics: made where they are missing, compared where they are not, never altered."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    NoError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest

from worker.adapters.kafka.connection import close_in_time, connection_options, start_client, translated_errors
from worker.errors import FatalError
from worker.settings import KafkaSettings
from worker.telemetry import log

MESSAGE_BYTES = "max.message.bytes"
LOOK_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What a topic of ours should be."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, int]
    we_publish: bool


@dataclass(frozen=True, slots=True)
class TopicReport:
    """One topic as found, or as just made; each difference as "name is X, settings say Y"."""

    topic: str
    created: bool
    differences: tuple[str, ...]
    unusable: bool
    """Missing, or too small for what we publish."""


def topic_specs(settings: KafkaSettings) -> tuple[TopicSpec, ...]:
    topics = (
        (settings.answers_topic, settings.answers_retention_ms, False),
        (settings.attributions_topic, settings.attributions_retention_ms, True),
        (settings.dead_letter_topic, settings.dead_letter_retention_ms, True),
    )
    return tuple(
        TopicSpec(
            name=name,
            partitions=settings.partitions,
            replication_factor=settings.replication_factor,
            configs={"retention.ms": retention_ms, MESSAGE_BYTES: settings.message_bytes_max},
            we_publish=we_publish,
        )
        for name, retention_ms, we_publish in topics
    )


async def ensure_topics(settings: KafkaSettings) -> Sequence[TopicReport]:
    """Make the topics that are missing; one report per topic. What the broker cannot tell is not compared.

    Raises:
        UnavailableError: no broker.
        FatalError: it refuses to make a topic.
    """
    specs = topic_specs(settings)
    with translated_errors("making topics"):
        async with _admin(settings) as admin:
            reports = await _compared(admin, specs)
            made = await _create(admin, [spec for spec, report in zip(specs, reports, strict=True) if report is None])
            async with asyncio.timeout(settings.request_timeout_ms / 1000):
                while None in reports:
                    # A broker shows a new topic only some moments after it was made.
                    await asyncio.sleep(LOOK_AGAIN_S)
                    reports = await _compared(admin, specs)
    return [replace(report, created=report.topic in made) for report in reports if report is not None]


async def check_topics(settings: KafkaSettings) -> Sequence[TopicReport]:
    """Compare the topics; harmless differences are logged.

    Raises:
        UnavailableError: no broker.
        FatalError: a topic is missing, is hidden from us, or refuses messages of the size we publish.
    """
    specs = topic_specs(settings)
    with translated_errors("checking topics"):
        async with _admin(settings) as admin:
            found = await _compared(admin, specs)
            missing = [spec.name for spec, report in zip(specs, found, strict=True) if report is None]
            await _require_visible(admin, missing)
    reports = [
        report or TopicReport(spec.name, False, ("does not exist",), True)
        for spec, report in zip(specs, found, strict=True)
    ]
    problems = [f"{report.topic}: {', '.join(report.differences)}" for report in reports if report.unusable]
    if problems:
        raise FatalError(
            f"{'; '.join(problems)}. `attribution-worker topics` makes missing topics; "
            "an existing one is altered by whoever owns it, or the settings follow it"
        )
    for report in reports:
        if report.differences:
            log.warning("topic.differs", topic=report.topic, differences=list(report.differences))
    return reports


@asynccontextmanager
async def _admin(settings: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**connection_options(settings))
    try:
        await start_client(admin, settings)
        yield admin
    finally:
        await close_in_time(admin.close(), "admin")


async def _compared(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> list[TopicReport | None]:
    """A report per topic, None for one that does not exist."""
    # All topics: asking for one by name would create it, where the broker creates topics by itself.
    described = {topic["topic"]: topic for topic in await admin.describe_topics(None)}
    configs = await _configs(admin, [spec.name for spec in specs if spec.name in described])
    return [
        _report(spec, described[spec.name]["partitions"], configs.get(spec.name, {}))
        if spec.name in described
        else None
        for spec in specs
    ]


async def _require_visible(admin: AIOKafkaAdminClient, names: Sequence[str]) -> None:
    """Of all topics, those that we may not see are left out as if they did not exist: these are asked for by name."""
    if not names:
        return
    request = MetadataRequest(list(names), allow_auto_topic_creation=False)
    response = await admin._send_request(request)  # noqa: SLF001  # its own way of asking would create them
    refused = [name for code, name, *_ in response.topics if for_code(code) is TopicAuthorizationFailedError]
    if refused:
        raise TopicAuthorizationFailedError(", ".join(refused))


async def _configs(admin: AIOKafkaAdminClient, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """Topic configurations by name; without those that the broker does not tell, or not to us."""
    if not names:
        return {}
    try:
        responses = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in names])
    except IncompatibleBrokerVersion:
        return {}
    return {
        name: {entry[0]: entry[1] for entry in entries}
        for response in responses
        for _, _, _, name, entries in response.resources
    }


def _report(
    spec: TopicSpec, partitions: Sequence[Mapping[str, Sequence[int]]], configs: Mapping[str, str]
) -> TopicReport:
    replication_factor = min((len(partition["replicas"]) for partition in partitions), default=0)
    compared = [
        ("partitions", len(partitions), spec.partitions),
        ("replication factor", replication_factor, spec.replication_factor),
        *((name, int(configs[name]), wanted) for name, wanted in spec.configs.items() if name in configs),
    ]
    differences = tuple(f"{name} is {is_}, settings say {wanted}" for name, is_, wanted in compared if is_ != wanted)
    too_small = (
        spec.we_publish and int(configs.get(MESSAGE_BYTES, spec.configs[MESSAGE_BYTES])) < (spec.configs[MESSAGE_BYTES])
    )
    return TopicReport(spec.name, False, differences, too_small)


async def _create(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> frozenset[str]:
    """The topics that were made; others may have been made by another worker in between."""
    if not specs:
        return frozenset()
    response = await admin.create_topics(
        [
            NewTopic(
                spec.name,
                spec.partitions,
                spec.replication_factor,
                topic_configs={name: str(value) for name, value in spec.configs.items()},
            )
            for spec in specs
        ]
    )
    results = {topic: (for_code(code), message) for topic, code, *message in response.topic_errors}
    for topic, (error, message) in results.items():
        if error not in (NoError, TopicAlreadyExistsError):
            raise FatalError(f"topic {topic} cannot be made: {error.__name__}: {' '.join(filter(None, message))}")
    return frozenset(topic for topic, (error, _) in results.items() if error is NoError)
