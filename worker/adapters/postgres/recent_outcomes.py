"""What the tables say about the latest outcomes of one topic: the ground of the dead-letter limits."""

from sqlalchemy import TIMESTAMP, ColumnElement, Select, false, func, literal, select, true, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres.limits import RecentOutcomes
from worker.adapters.postgres.tables import answers, dead_letters, intake_resumes
from worker.settings import DeadLetterSettings


async def recent_outcomes(connection: AsyncConnection, topic: str, settings: DeadLetterSettings) -> RecentOutcomes:
    """Counted since the last resume; each index is read from its new end, and no further than the limits look."""
    last_resume = _latest(select(func.max(intake_resumes.c.resumed_at)).where(intake_resumes.c.topic == topic))
    last_settled = _latest(select(func.max(answers.c.settled_at)).where(answers.c.topic == topic))
    dead = (dead_letters.c.topic == topic) & (dead_letters.c.created_at > last_resume)
    settled = (answers.c.topic == topic) & (answers.c.settled_at > last_resume)
    in_a_row = select(true()).where(dead, dead_letters.c.created_at > last_settled).limit(settings.consecutive_max)
    window = settings.ratio_window - 1
    both = union_all(
        _newest(answers.c.settled_at, false(), settled, window).subquery().select(),
        _newest(dead_letters.c.created_at, true(), dead, window).subquery().select(),
    ).subquery()
    latest = select(both.c.dead).order_by(both.c.at.desc()).limit(window).subquery()
    consecutive = select(func.count()).select_from(in_a_row.subquery()).scalar_subquery()
    counts = select(consecutive, func.count().filter(latest.c.dead), func.count()).select_from(latest)
    return RecentOutcomes(*(await connection.execute(counts)).one())


def _latest(moment: Select[object]) -> ColumnElement[object]:
    beginning = literal("-infinity").cast(TIMESTAMP(timezone=True))
    return func.coalesce(moment.scalar_subquery(), beginning)


def _newest(
    moment: ColumnElement[object], is_dead: ColumnElement[bool], scope: ColumnElement[bool], count: int
) -> Select[object, bool]:
    return select(moment.label("at"), is_dead.label("dead")).where(scope).order_by(moment.desc()).limit(count)
