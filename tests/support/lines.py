"""A whole worker on given services, and what is left of its records afterwards."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from tests.fakes.judge import FakeJudge
from tests.support import samples
from worker.app import RunSummary, open_worker
from worker.core.model import Answer
from worker.embedded.broker import Broker
from worker.ports import Judge
from worker.settings import Settings


def settings_of(broker: Broker, dsn: str, prefix: str, **sections: Mapping[str, object]) -> Settings:
    """Settings for one test: its own topics, its own group, and pauses short enough for a test."""
    kafka = {
        "answers_topic": f"{prefix}.answers",
        "attributions_topic": f"{prefix}.attributions",
        "dead_letter_topic": f"{prefix}.dead-letter",
        "group_id": prefix,
        "commit_interval_ms": 100,
        "partitions": 3,
        **broker.settings_overrides(),
        **sections.pop("kafka", {}),
    }
    settle = {"backoff_base_s": 0.01, "outage_backoff_max_s": 0.2, **sections.pop("settle", {})}
    outbox = {"poll_interval_ms": 50, **sections.pop("outbox", {})}
    postgres = {"dsn": dsn, **sections.pop("postgres", {})}
    given = {"kafka": kafka, "settle": settle, "outbox": outbox, "postgres": postgres, **sections}
    return Settings().overridden(given)


async def run_until_drained(settings: Settings, judge: Judge | None = None) -> RunSummary:
    async with open_worker(settings, judge or FakeJudge()) as worker:
        return await worker.run(asyncio.Event(), until_drained=True)


async def rows(dsn: str, query: str, *arguments: object) -> list[dict[str, Any]]:
    connection = await asyncpg.connect(dsn)
    try:
        return [dict(row) for row in await connection.fetch(query, *arguments)]
    finally:
        await connection.close()


async def value(dsn: str, query: str, *arguments: object) -> Any:
    [row] = await rows(dsn, query, *arguments)
    [only] = row.values()
    return only


def events(answers: Sequence[Answer]) -> list[bytes]:
    return [json.dumps(samples.event_of(answer)).encode() for answer in answers]


def answers(count: int, *, start: int = 0) -> list[Answer]:
    return [samples.answer(f"a-{number}") for number in range(start, start + count)]
