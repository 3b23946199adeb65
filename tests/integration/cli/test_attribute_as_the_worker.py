"""`attribute` says of an event exactly what the worker stores of it."""

import asyncio
import json
from typing import Any

import pytest

from tests.support import lines
from tests.support.command_line import RunHere, environment_of
from tests.support.kafka import producer_of
from worker.adapters.local_judge import LocalJudge
from worker.app import ensure_topics
from worker.demo.first_run import sample_events
from worker.embedded.broker import Broker
from worker.settings import Settings

pytestmark = pytest.mark.postgres
STORED = """
    SELECT t.tenant, t.answer_id, t.status, t.utility_units, t.residual_units, encode(t.method_hash, 'hex') AS method,
        t.llm_call_count AS calls, t.evidence::text AS evidence, coalesce(json_agg(json_build_object(
            'source_id', s.source_id, 'owner_id', s.owner_id,
            'credit_units', s.credit_units, 'share_units', s.share_units
        ) ORDER BY s.position) FILTER (WHERE s.source_id IS NOT NULL), '[]')::text AS sources
    FROM attributions t LEFT JOIN source_attributions s USING (tenant, answer_id, revision, settled_at)
    GROUP BY t.tenant, t.answer_id, t.revision, t.settled_at
"""
METHODS: list[dict[str, object]] = [
    {},
    {"policy": "top_k", "k": 2},
    {"policy": "rank_weighted", "omega": ("1", "1/3"), "grouping": "owner"},
]


async def worked(broker: Broker, settings: Settings) -> None:
    await ensure_topics(settings)
    async with producer_of(broker) as producer:
        for event in sample_events():
            await producer.send(settings.kafka.answers_topic, event)
        await producer.flush()
    await lines.run_until_drained(settings, LocalJudge(settings.judge.key_points_max))


def as_stored(row: dict[str, Any]) -> dict[str, Any]:
    evidence = json.loads(row.pop("evidence"))
    quotes = {(row_index, column): text for row_index, column, _, text in evidence["quotes"]}
    source_ids = [source["source_id"] for source in evidence["sources"]]
    key_points = [
        {
            "text": point["text"],
            "weight": point["weight"],
            "supports": dict(zip(source_ids, evidence["supports"][index], strict=True)),
            "quotes": {
                source_id: quotes[index, column]
                for column, source_id in enumerate(source_ids)
                if (index, column) in quotes
            },
        }
        for index, point in enumerate(evidence["key_points"])
    ]
    return {**row, "sources": json.loads(row["sources"]), "key_points": key_points}


def as_told(line: dict[str, Any]) -> dict[str, Any]:
    told = {name: line[name] for name in ("tenant", "answer_id", "status", "utility_units", "residual_units")}
    sources = [
        {name: source[name] for name in ("source_id", "owner_id", "credit_units", "share_units")}
        for source in line["sources"]
    ]
    key_points = [
        {
            "text": point["text"],
            "weight": point["weight"],
            "supports": {source_id: round(score * 10_000) for source_id, score in point["supports"].items()},
            "quotes": point["quotes"],
        }
        for point in line["key_points"]
    ]
    method, calls = line["method"]["method_hash"], line["usage"]["calls"]
    return {**told, "method": method, "calls": calls, "sources": sources, "key_points": key_points}


@pytest.mark.parametrize("credit", METHODS, ids=lambda credit: str(credit.get("policy", "default")))
def test_a_file_of_events_is_told_what_would_be_stored(
    run: RunHere, embedded_broker: Broker, postgres_dsn: str, topics_prefix: str, credit: dict[str, object]
) -> None:
    settings = lines.settings_of(embedded_broker, postgres_dsn, topics_prefix, credit=credit)
    asyncio.run(worked(embedded_broker, settings))
    rows = asyncio.run(lines.rows(postgres_dsn, STORED))

    ran = run("attribute", "-", "--format", "json", stdin=b"\n".join(sample_events()), env=environment_of(settings))

    told = [as_told(json.loads(line)) for line in ran.stdout.splitlines()]
    by_key = {(row["tenant"], row["answer_id"]): as_stored(row) for row in rows}
    assert len(told) == len(by_key) == len(sample_events())
    for line in told:
        assert line == by_key[line["tenant"], line["answer_id"]]
