"""The questions people ask, answered by the views and by the report."""

from dataclasses import replace
from decimal import Decimal

import asyncpg
import pytest

from tests.support import samples
from tests.support.attributions import attribution_of, message_of
from worker.adapters.postgres.report import AnswerReport, OwnerTotal, Report, SourceLine, Spend, UngroundedKeyPoint
from worker.adapters.postgres.store import PostgresStore, open_store
from worker.core.model import UNIT_SCALE, Attribution, Reward, Usage
from worker.settings import Settings, TextStorage

pytestmark = pytest.mark.postgres

USAGE = Usage(
    calls=2, input_tokens=100, cache_read_tokens=40, output_tokens=7, reasoning_tokens=3, cost_usd=Decimal("0.0123")
)


def attributions() -> list[Attribution]:
    """One answer with a reward and an unevidenced cell; one half ungrounded and unpriced; one without sources."""
    priced = replace(samples.judgement([[10_000, 3_000, 0]]), usage=USAGE, unevidenced={(0, 2): 9_000})
    paid = replace(samples.answer("paid"), reward=Reward(Decimal("12.50"), "EUR"))
    half = replace(samples.judgement([[0, 7_000, 0], [0, 0, 2_000]]), usage=replace(USAGE, cost_usd=None))
    return [
        attribution_of(paid, priced),
        attribution_of(samples.answer("half"), half),
        attribution_of(samples.answer("empty", source_count=0), samples.judgement([])),
    ]


async def save_all(store: PostgresStore) -> None:
    for attribution in attributions():
        await store.save(attribution, message_of(attribution))


async def test_owner_credit_daily_adds_up_to_the_utility_of_all_answers(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    await save_all(store)
    rows = await sql.fetch("SELECT * FROM owner_credit_daily ORDER BY owner_id")
    assert [row["owner_id"] for row in rows] == ["owner-0", "owner-1"]
    assert sum(row["credit_units"] for row in rows) == sum(a.utility_units for a in attributions())
    assert sum(row["shares"] for row in rows) == 2, "two answers have a budget to share"
    assert {row["day"] for row in rows} == {await sql.fetchval("SELECT (now() AT TIME ZONE 'UTC')::date")}


async def test_answer_explained_says_for_each_key_point_and_source_what_supports_it(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    await save_all(store)
    rows = await sql.fetch("SELECT * FROM answer_explained WHERE answer_id = 'paid' ORDER BY source_position")
    assert [row["support"] for row in rows] == [Decimal("1.0"), Decimal("0.3"), 0]
    assert [row["quote"] for row in rows] == ["tea is a drink", "tea is a drink", None]
    assert [row["quote_origin"] for row in rows] == ["verbatim", "verbatim", None]
    assert [row["unevidenced_support"] for row in rows] == [None, None, Decimal("0.9")]
    assert {(row["key_point"], row["coverage"], row["ungrounded"]) for row in rows} == {("Key point 0.", 1, False)}
    assert [row["source_credit"] for row in rows] == [Decimal("0.85"), Decimal("0.15"), 0]
    half = await sql.fetch("SELECT DISTINCT key_point_index, ungrounded FROM answer_explained WHERE answer_id = 'half'")
    assert {tuple(row) for row in half} == {(0, False), (1, True)}


async def test_ungrounded_key_points_are_those_below_the_threshold(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    await save_all(store)
    (row,) = await sql.fetch("SELECT * FROM ungrounded_key_points")
    assert (row["answer_id"], row["key_point"], row["coverage"]) == ("half", "Key point 1.", Decimal("0.2"))
    assert row["grounding_threshold"] == Decimal("0.3")


async def test_llm_spend_daily_never_takes_an_unknown_cost_for_nothing(sql: asyncpg.Connection) -> None:
    for outcome, cost, reserved in (("complete", "0.5", "1"), ("complete", None, "2"), ("unknown", None, "4")):
        await add_call(sql, outcome, cost, reserved)
    (row,) = await sql.fetch("SELECT * FROM llm_spend_daily")
    assert (row["calls"], row["unknown_calls"], row["unpriced_calls"]) == (3, 1, 1)
    assert (row["cost_usd"], row["cost_usd_open"]) == (Decimal("0.5"), 6)


async def test_answer_cost_tells_the_attribution_from_everything_ever_called(
    store: PostgresStore, sql: asyncpg.Connection
) -> None:
    await save_all(store)
    await add_call(sql, "complete", "0.0123", "1")
    await add_call(sql, "failed", "0.02", "1")
    rows = {row["answer_id"]: row for row in await sql.fetch("SELECT * FROM answer_cost")}
    paid = rows["paid"]
    assert (paid["cost_usd"], paid["journaled_cost_usd"]) == (Decimal("0.0123"), Decimal("0.0323"))
    assert (paid["input_tokens"], paid["output_tokens"], paid["journaled_calls"]) == (140, 10, 2)
    assert rows["half"]["cost_usd"] is None, "unpriced is not free"
    assert rows["empty"]["cost_usd"] == 0


async def add_call(sql: asyncpg.Connection, outcome: str, cost: str | None, reserved: str) -> None:
    await sql.execute(
        "INSERT INTO llm_calls (call_id, call_key, tenant, answer_id, stage, provider, model, deadline_at, "
        "finished_at, outcome, cost_usd, reserved_cost_usd) "
        "VALUES (gen_random_uuid(), sha256(''), 'default', 'paid', 'score', 'p', 'm', now(), now(), $1, $2, $3)",
        outcome,
        cost and Decimal(cost),
        Decimal(reserved),
    )


async def test_the_report_says_who_earned_what(store: PostgresStore) -> None:
    await save_all(store)
    report = Report(store.database)
    paid, half, empty = await report.answers(10)
    assert paid == AnswerReport(
        tenant="default",
        answer_id="paid",
        status="attributed",
        query="What is tea?",
        utility_units=UNIT_SCALE,
        reward_amount=Decimal("12.50"),
        reward_currency="EUR",
        sources=(
            SourceLine("s0", "owner-0", None, 850_000_000_000, 850_000_000_000),
            SourceLine("s1", "owner-1", None, 150_000_000_000, 150_000_000_000),
            SourceLine("s2", "owner-0", None, 0, 0),
        ),
    )
    assert (half.answer_id, len(half.sources)) == ("half", 3)
    assert (empty.status, empty.sources) == ("no_sources", ())
    assert [answer.answer_id for answer in await report.answers(1)] == ["paid"]


async def test_the_report_adds_up_owners_spend_and_what_is_ungrounded(store: PostgresStore) -> None:
    await save_all(store)
    report = Report(store.database)
    assert await report.owner_totals() == [
        OwnerTotal("owner-0", 2, 4, 950_000_000_000, 1_072_222_222_222),
        OwnerTotal("owner-1", 2, 2, 500_000_000_000, 927_777_777_778),
    ]
    assert await report.ungrounded_key_points(10) == [
        UngroundedKeyPoint("default", "half", "Key point 1.", Decimal("0.2000"), Decimal("0.3000"))
    ]
    assert await report.spend() == Spend(answers=3, calls=4, tokens=300, cost_usd=Decimal("0.0123"), unpriced_answers=1)


async def test_an_empty_database_reports_nothing_and_no_cost(store: PostgresStore) -> None:
    report = Report(store.database)
    assert await report.answers(10) == []
    assert await report.owner_totals() == []
    assert await report.ungrounded_key_points(10) == []
    assert await report.spend() == Spend(answers=0, calls=0, tokens=0, cost_usd=Decimal(0), unpriced_answers=0)


async def test_with_texts_hashed_no_text_of_the_event_is_in_any_table(
    settings: Settings, sql: asyncpg.Connection
) -> None:
    hashed = settings.model_copy(update={"store_text": TextStorage.HASH})
    given = attributions()[0]
    titled = replace(given.answer.sources[0], title="Secret title")
    given = replace(given, answer=replace(given.answer, sources=(titled, *given.answer.sources[1:])))
    async with open_store(hashed, code_version="test") as store:
        await store.save(given, message_of(given))
    stored = await sql.fetchval(
        "SELECT string_agg(t::text, ' ') FROM (SELECT attributions::text t FROM attributions) x"
    )
    stored += await sql.fetchval("SELECT string_agg(s::text, ' ') FROM source_attributions s")
    for text in ("What is tea?", "Tea is a drink.", "Key point", "tea is a drink", "Secret title"):
        assert text not in stored
    explained = await sql.fetchrow("SELECT * FROM answer_explained LIMIT 1")
    assert len(explained["key_point"]) == len(explained["quote"]) == 64
