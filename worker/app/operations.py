"""What an operator or an auditor asks for: migrations, topics, resuming, auditing, a first look at the tables."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType

from worker.adapters.kafka import topics
from worker.adapters.kafka.producer import KafkaPublisher
from worker.adapters.kafka.topics import TopicReport
from worker.adapters.postgres.audit import Audit
from worker.adapters.postgres.database import errors_translated, open_database
from worker.adapters.postgres.erasure import Erasure
from worker.adapters.postgres.migrate import Migrated, migrate_database
from worker.adapters.postgres.report import AnswerReport, OwnerTotal, QueryResult, Report, Spend, UngroundedKeyPoint
from worker.adapters.postgres.rights import Role, grant_rights
from worker.adapters.postgres.stages import Stage
from worker.adapters.postgres.store import open_store
from worker.app.method import code_version
from worker.core.records import OutboundMessage
from worker.settings import PostgresSettings, Settings

FACTS_MAX = 100

WHOLE_HISTORY_TIMEOUT_S = 3_600.0
"""One statement of an audit or an erasure, in place of `postgres.statement_timeout_s`."""


async def check_topics(settings: Settings) -> Sequence[TopicReport]:
    """Compare the topics with the settings.

    Raises:
        FatalError: one is missing or unusable.
    """
    return await topics.check_topics(settings.kafka)


async def ensure_topics(settings: Settings) -> Sequence[TopicReport]:
    """Make the topics that are missing; an existing one is never altered."""
    return await topics.ensure_topics(settings.kafka)


async def publish(settings: Settings, messages: Sequence[OutboundMessage]) -> None:
    """Publish messages as they are; used to put answer events in."""
    async with KafkaPublisher(settings.kafka) as publisher:
        await publisher.publish(messages)


async def migrate(
    settings: Settings, roles: Mapping[Role, str] = MappingProxyType({}), stage: Stage = Stage.ALL
) -> Migrated:
    """Bring the database as far as the stage goes, with its partitions, and give these database roles their rights."""
    with errors_translated():
        migrated = await migrate_database(settings.postgres, stage)
    if roles:
        await grant_rights(settings.postgres, roles)
    return migrated


async def resume(settings: Settings, reason: str) -> None:
    """An operator's word that the dead-letter limits may count anew."""
    async with open_store(settings, code_version=code_version()) as store:
        await store.resume(reason)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the tables say, for a person's first look."""

    answers: Sequence[AnswerReport]
    owners: Sequence[OwnerTotal]
    ungrounded: Sequence[UngroundedKeyPoint]
    spend: Spend


async def collect_facts(settings: Settings) -> Facts:
    """Read the first answers and the totals from the database."""
    async with open_database(settings.postgres) as database:
        report = Report(database)
        return Facts(
            answers=await report.answers(FACTS_MAX),
            owners=await report.owner_totals(),
            ungrounded=await report.ungrounded_key_points(FACTS_MAX),
            spend=await report.spend(),
        )


async def query(settings: Settings, statement: str) -> QueryResult:
    """What this SQL gives; for reading."""
    async with open_database(settings.postgres) as database:
        return await Report(database).query(statement)


@asynccontextmanager
async def open_erasure(settings: Settings) -> AsyncIterator[Erasure]:
    """Erases texts; for the owner of the tables."""
    async with open_database(_patient(settings)) as database:
        yield Erasure(database)


@asynccontextmanager
async def open_audit(settings: Settings) -> AsyncIterator[Audit]:
    """Recomputes what is stored; reads only."""
    async with open_database(_patient(settings)) as database:
        yield Audit(database)


def _patient(settings: Settings) -> PostgresSettings:
    """For what reads all of a history, which takes what it takes; a person waits for it and can end it."""
    return settings.postgres.model_copy(update={"statement_timeout_s": WHOLE_HISTORY_TIMEOUT_S})
