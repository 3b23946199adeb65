"""Keys of answers settled long ago: forgotten when nothing can bring them back and nothing hangs on them any more."""

from sqlalchemy import bindparam, delete, exists, select
from sqlalchemy.ext.asyncio import AsyncEngine

from worker.adapters.postgres.partitions import current_month
from worker.adapters.postgres.tables import DeadLetterState, answers, attributions, dead_letters

ROWS_PER_TRANSACTION = 5_000
"""A transaction this short holds up nobody, and an interrupted run has done its part."""

_old, _attribution, _letter = answers.alias("old"), attributions.c, dead_letters.c
_attributed = exists().where(_attribution.tenant == _old.c.tenant, _attribution.answer_id == _old.c.answer_id)
# Replayed, such a letter would find its answer unsettled, and be paid.
_may_be_replayed = exists().where(
    _letter.tenant == _old.c.tenant,
    _letter.answer_id == _old.c.answer_id,
    _letter.answer_id.is_not(None),
    _letter.state == DeadLetterState.OPEN.value,
)
_oldest = (
    select(_old.c.tenant, _old.c.answer_id)
    .where(_old.c.topic == bindparam("topic"), _old.c.settled_at < bindparam("before"))
    .where(~_attributed, ~_may_be_replayed)
    .order_by(_old.c.settled_at)
    .limit(ROWS_PER_TRANSACTION)
    .subquery()
)
FORGET = delete(answers).where(answers.c.tenant == _oldest.c.tenant, answers.c.answer_id == _oldest.c.answer_id)
NEXT_TOPIC = select(answers.c.topic).where(answers.c.topic > bindparam("after")).order_by(answers.c.topic).limit(1)


async def forget_answers(engine: AsyncEngine, *, retention_months: int) -> int:
    """Delete the keys settled more than so many whole months before this one; returns how many.

    Those keep theirs that still have an attribution, whatever its revision, or an open dead letter. What is forgotten
    is settled anew, and paid again, if its event ever comes again: the settings refuse a retention below the topic's.
    """
    async with engine.begin() as connection:
        before = (await current_month(connection)).plus(-retention_months).start
    forgotten = 0
    topic = await _next_topic(engine, after="")
    while topic is not None:
        async with engine.begin() as connection:
            batch = (await connection.execute(FORGET, {"topic": topic, "before": before})).rowcount
        forgotten += batch
        if batch < ROWS_PER_TRANSACTION:
            topic = await _next_topic(engine, after=topic)
    return forgotten


async def _next_topic(engine: AsyncEngine, *, after: str) -> str | None:
    async with engine.begin() as connection:
        return (await connection.execute(NEXT_TOPIC, {"after": after})).scalar_one_or_none()
