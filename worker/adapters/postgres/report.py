"""What the tables say, in few queries, for people in a hurry: who earned what, what is ungrounded, what it cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from typing import Any

from sqlalchemy import RowMapping, Select, and_, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres.database import Database
from worker.adapters.postgres.tables import answers, attributions, source_attributions


@dataclass(frozen=True, slots=True)
class SourceLine:
    """What one source earned of one answer, in units of 10⁻¹²."""

    source_id: str
    owner_id: str | None
    title: str | None
    credit_units: int
    share_units: int


@dataclass(frozen=True, slots=True)
class AnswerReport:
    """One settled answer; `query` is None where texts are not stored."""

    tenant: str
    answer_id: str
    status: str
    query: str | None
    utility_units: int
    reward_amount: Decimal | None
    reward_currency: str | None
    sources: tuple[SourceLine, ...]


@dataclass(frozen=True, slots=True)
class OwnerTotal:
    """What one owner earned in all; `owner_id` None gathers the sources without one."""

    owner_id: str | None
    answers: int
    sources: int
    credit_units: int
    share_units: int


@dataclass(frozen=True, slots=True)
class UngroundedKeyPoint:
    """Something an answer claims and no source supports enough; coverage and threshold between 0 and 1."""

    tenant: str
    answer_id: str
    key_point: str
    coverage: Decimal
    grounding_threshold: Decimal


@dataclass(frozen=True, slots=True)
class Spend:
    """What judging the answers cost; `cost_usd` is of the priced ones, `unpriced_answers` have no known cost."""

    answers: int
    calls: int
    tokens: int
    cost_usd: Decimal
    unpriced_answers: int


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Columns and rows as the driver gives them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


_t, _s = attributions.c, source_attributions.c
CURRENT = and_(answers.c.tenant == _t.tenant, answers.c.answer_id == _t.answer_id, answers.c.revision == _t.revision)
THEIR_SOURCES = and_(
    _s.tenant == _t.tenant, _s.answer_id == _t.answer_id, _s.revision == _t.revision, _s.settled_at == _t.settled_at
)


class Report:
    """Current revisions only; reads only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def answers(self, answers_max: int) -> list[AnswerReport]:
        """The first settled answers with their sources in the event's order."""
        first = (
            select(attributions, answers.c.settled_at.label("first_settled_at"))
            .join(answers, CURRENT)
            .order_by(answers.c.settled_at, answers.c.tenant, answers.c.answer_id)
            .limit(answers_max)
            .subquery()
        )
        query = (
            select(
                first.c.tenant,
                first.c.answer_id,
                first.c.status,
                first.c.evidence["query"].astext.label("query"),
                first.c.utility_units,
                first.c.reward_amount,
                first.c.reward_currency,
                _s.source_id,
                _s.owner_id,
                _s.title,
                _s.credit_units,
                _s.share_units,
            )
            .outerjoin(
                source_attributions,
                and_(*(_s[name] == first.c[name] for name in ("tenant", "answer_id", "revision", "settled_at"))),
            )
            .order_by(first.c.first_settled_at, first.c.tenant, first.c.answer_id, _s.position)
        )
        rows = await self._all(query)
        return [_answer(list(group)) for _, group in groupby(rows, key=lambda row: (row["tenant"], row["answer_id"]))]

    async def owner_totals(self) -> list[OwnerTotal]:
        """Every owner, the one with the most credit first."""
        credit = func.sum(_s.credit_units)
        query = (
            select(
                _s.owner_id,
                func.count(func.distinct(_s.tenant, _s.answer_id)).label("answers"),
                func.count().label("sources"),
                credit.label("credit_units"),
                func.sum(_s.share_units).label("share_units"),
            )
            .join(attributions, THEIR_SOURCES)
            .join(answers, CURRENT)
            .group_by(_s.owner_id)
            .order_by(credit.desc(), _s.owner_id)
        )
        return [
            OwnerTotal(
                row["owner_id"], row["answers"], row["sources"], int(row["credit_units"]), int(row["share_units"])
            )
            for row in await self._all(query)
        ]

    async def ungrounded_key_points(self, key_points_max: int) -> list[UngroundedKeyPoint]:
        query = text(
            "SELECT tenant, answer_id, key_point, coverage, grounding_threshold FROM ungrounded_key_points "
            "ORDER BY settled_at, tenant, answer_id, key_point_index LIMIT :key_points_max"
        )

        async def work(connection: AsyncConnection) -> list[UngroundedKeyPoint]:
            found = await connection.execute(query, {"key_points_max": key_points_max})
            return [UngroundedKeyPoint(*row) for row in found]

        return await self._database.run(work)

    async def spend(self) -> Spend:
        tokens = _t.input_tokens + _t.cache_read_tokens + _t.cache_write_tokens + _t.output_tokens + _t.reasoning_tokens
        query = select(
            func.count().label("answers"),
            func.coalesce(func.sum(_t.llm_call_count), 0).label("calls"),
            func.coalesce(func.sum(tokens), 0).label("tokens"),
            func.coalesce(func.sum(_t.cost_usd), 0).label("cost_usd"),
            func.count().filter(_t.cost_usd.is_(None)).label("unpriced_answers"),
        ).join_from(attributions, answers, CURRENT)
        (row,) = await self._all(query)
        return Spend(row["answers"], int(row["calls"]), int(row["tokens"]), row["cost_usd"], row["unpriced_answers"])

    async def query(self, statement: str) -> QueryResult:
        """What a person's own SQL gives."""

        async def work(connection: AsyncConnection) -> QueryResult:
            result = await connection.execute(text(statement))
            return QueryResult(tuple(result.keys()), tuple(tuple(row) for row in result))

        return await self._database.run(work)

    async def _all(self, query: Select[Any]) -> Sequence[RowMapping]:
        async def work(connection: AsyncConnection) -> Sequence[RowMapping]:
            rows: Sequence[RowMapping] = (await connection.execute(query)).mappings().all()
            return rows

        return await self._database.run(work)


def _answer(rows: Sequence[RowMapping]) -> AnswerReport:
    """One answer from its rows, one per source; an answer without sources has one row without a source."""
    head = rows[0]
    own = {name: head[name] for name in AnswerReport.__slots__ if name != "sources"}
    lines = [SourceLine(**{name: row[name] for name in SourceLine.__slots__}) for row in rows if row["source_id"]]
    return AnswerReport(sources=tuple(lines), **own)
