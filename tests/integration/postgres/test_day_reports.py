"""What a report of one day reads: that day, however much there is besides."""

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

pytestmark = pytest.mark.postgres

ROWS = 30_000
"""Of a month, in the order of time: some hundred blocks, of which an index by day names some."""
ROWS_OF_A_RANGE = 5_000
"""At most, of the 128 blocks that such an index describes together."""

SOURCES = f"""
    INSERT INTO source_attributions (tenant, answer_id, revision, position, settled_at, source_id, url, credit_units,
        share_units, plain_credit_units, plain_share_units)
    SELECT 'default', 'a-' || i, 1, 0, $1::timestamptz + i * interval '28 days' / {ROWS}, 's',
        repeat('u', 200), 0, 0, 0, 0
    FROM generate_series(0, {ROWS - 1}) i
"""  # noqa: S608  # a number of ours
CALLS = f"""
    INSERT INTO llm_calls (call_id, started_at, call_key, tenant, answer_id, stage, provider, model, deadline_at,
        finished_at, outcome)
    SELECT gen_random_uuid(), at, sha256(i::text::bytea), 'default', 'a-' || i, repeat('s', 200), 'p', 'm', at, at,
        'unknown'
    FROM generate_series(0, {ROWS - 1}) i
    CROSS JOIN LATERAL (SELECT $1::timestamptz + i * interval '28 days' / {ROWS} AS at) moment
"""  # noqa: S608  # a number of ours


@pytest.mark.parametrize(
    ("view", "table", "insert"),
    [("owner_credit_daily", "source_attributions", SOURCES), ("llm_spend_daily", "llm_calls", CALLS)],
)
async def test_a_report_of_one_day_reads_that_day_and_no_other_month(
    sql: asyncpg.Connection, view: str, table: str, insert: str
) -> None:
    for month, end in (("2020-01", "2020-02"), ("2020-02", "2020-03")):
        name = f"{table}_{month.replace('-', '_')}"
        await sql.execute(f"CREATE TABLE {name} PARTITION OF {table} FOR VALUES FROM ('{month}-01') TO ('{end}-01')")
        await sql.execute(insert.replace("$1", f"'{month}-01'"))
    # Elsewhere the autovacuum summarizes each range of blocks when it is full.
    await sql.execute(f"VACUUM (ANALYZE) {table}")
    query = f"EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM {view} WHERE day = '2020-01-15'"  # noqa: S608  # ours
    plan = json.loads(await sql.fetchval(query))[0]["Plan"]
    read = {node["Relation Name"]: _rows_read(node) for node in _nodes(plan) if table in node.get("Relation Name", "")}
    assert 0 < read[f"{table}_2020_01"] < ROWS / 2
    assert read[f"{table}_2020_02"] < ROWS_OF_A_RANGE, "the last range of blocks, which is not full, is read always"


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


def _rows_read(node: dict[str, Any]) -> float:
    passed_over = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float((node["Actual Rows"] + passed_over) * node["Actual Loops"])
