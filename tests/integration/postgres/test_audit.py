"""Every stored number can be recomputed from what is stored beside it, and a changed one is found."""

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from tests.support import samples
from tests.support.attributions import attribution_of, message_of
from worker.adapters.postgres import audit as audit_module
from worker.adapters.postgres.audit import Audit
from worker.adapters.postgres.store import PostgresStore, open_store
from worker.core.model import Attribution, Judgement
from worker.core.policy import MAX, Grouping, Policy
from worker.settings import Settings, TextStorage

pytestmark = pytest.mark.postgres

POLICIES = [MAX, Policy.top_k(2), Policy.rank_weighted(["1", "1/2", "1/4"])]


def judgement(chooser: random.Random, key_point_count: int, source_count: int) -> Judgement:
    levels = [0, 0, 1, 3_000, 3_333, 7_000, 10_000]
    return samples.judgement([[chooser.choice(levels) for _ in range(source_count)] for _ in range(key_point_count)])


def many_attributions() -> list[Attribution]:
    """Every policy and grouping, every outcome, many shapes."""
    chooser = random.Random(11)
    return [
        attribution_of(
            samples.answer(f"{policy.name}-{grouping}-{key_points}-{sources}", source_count=sources),
            judgement(chooser, key_points, sources) if sources else samples.judgement([]),
            policy=policy,
            grouping=grouping,
        )
        for policy in POLICIES
        for grouping in Grouping
        for key_points, sources in ((1, 1), (1, 7), (3, 4), (8, 10), (0, 3), (0, 0))
    ]


async def save_all(store: PostgresStore) -> int:
    given = many_attributions()
    for attribution in given:
        await store.save(attribution, message_of(attribution))
    return len(given)


async def differences(store: PostgresStore) -> list[str]:
    return [found async for finding in Audit(store.database).verify() for found in finding.differences]


@pytest.mark.parametrize("texts", TextStorage)
async def test_what_was_stored_is_what_would_be_computed_also_without_texts(
    settings: Settings, texts: TextStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "PAGE_ROWS", 7)
    async with open_store(settings.model_copy(update={"store_text": texts}), code_version="test") as store:
        count = await save_all(store)
        audit = Audit(store.database)
        findings = [finding async for finding in audit.verify()]
        assert await audit.count() == count
    assert len({finding.answer_id for finding in findings}) == len(findings) == count
    assert [finding for finding in findings if finding.differences] == []


async def test_only_what_was_settled_since_is_verified(store: PostgresStore, sql: asyncpg.Connection) -> None:
    count = await save_all(store)
    audit = Audit(store.database)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert await audit.count(tomorrow) == 0
    assert [finding async for finding in audit.verify(tomorrow)] == []
    assert await audit.count(datetime(2000, 1, 1)) == count  # noqa: DTZ001  # naive, as a command line gives it


@dataclass(frozen=True)
class Change:
    """An UPDATE (or DELETE) of one answer's rows, and what the audit must say about it."""

    table: str
    what: str
    found: str
    only: str = "true"


CHANGES = {
    "one unit from one source to another": Change(
        "source_attributions",
        "credit_units = credit_units + CASE position WHEN 0 THEN 1 ELSE -1 END",
        "credit_units of source",
        only="position < 2 AND credit_units > 0",
    ),
    "a share": Change("source_attributions", "share_units = 0", "share_units of source", only="share_units > 0"),
    "plain credit": Change("source_attributions", "plain_credit_units = 5", "plain_credit_units of source"),
    "the owner": Change("source_attributions", "owner_id = 'thief'", "owner_id of source 1", only="position = 1"),
    "the order": Change("source_attributions", "position = position + 90", "source_id of source", only="position = 3"),
    "the totals": Change(
        "attributions",
        "utility_units = utility_units - 1, residual_units = residual_units + 1",
        "utility_units is stored",
        only="utility_units > 0",
    ),
    "the status": Change("attributions", "status = 'attributed'", "status is stored", only="utility_units = 0"),
    "the evidence": Change("attributions", "evidence = jsonb_set(evidence, '{supports,0,0}', '4321')", "computed as"),
    "a support that is none": Change(
        "attributions", "evidence = jsonb_set(evidence, '{supports,0,0}', '10001')", "cannot be recomputed"
    ),
    "a count": Change("attributions", "key_point_count = 9", "key_point_count"),
    "the method's document": Change(
        "methods", "document = jsonb_set(document, '{policy}', '\"top_k\"')", "method_hash is"
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_a_changed_number_is_found(store: PostgresStore, sql: asyncpg.Connection, change: Change) -> None:
    await save_all(store)
    done = await sql.execute(f"UPDATE {change.table} SET {change.what} WHERE {change.only}")  # noqa: S608  # our own
    assert not done.endswith(" 0")
    seen = await differences(store)
    assert any(change.found in difference for difference in seen), seen


@pytest.mark.parametrize(("gone", "found"), [("methods", "methods has no row"), ("source_attributions", "has 0 rows")])
async def test_missing_rows_are_found(store: PostgresStore, sql: asyncpg.Connection, gone: str, found: str) -> None:
    await save_all(store)
    await sql.execute(f"TRUNCATE {gone}")
    assert any(found in difference for difference in await differences(store))
