"""Texts of one answer, or of one owner, become hashes or go; what anybody earned stays, and can be verified still."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, delete, func, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres.database import Database
from worker.adapters.postgres.erased_evidence import without_texts, without_texts_of
from worker.adapters.postgres.journal import erase_responses
from worker.adapters.postgres.tables import attributions, dead_letters, reusable_judgements, source_attributions
from worker.adapters.postgres.tables.queues import DeadLetterState
from worker.core.model import AnswerId, AnswerKey, OwnerId, TenantId

NOTE = "texts erased"
REVISION = ("tenant", "answer_id", "revision", "settled_at")


@dataclass(frozen=True, slots=True)
class Erased:
    """How many were found; their texts are gone now, if they were not before."""

    attributions: int
    dead_letters: int


class Erasure:
    """For the owner of the tables: nobody else may change what is settled. Done again, it changes nothing.

    Query, answer, key points and quotes of the evidence become SHA-256; titles, raw responses, entries of the reuse
    cache and the bytes of dead letters go. Of an owner these are the quotes and titles of its sources, and whatever
    holds them among other things: raw responses, cache entries and dead letters of those answers.

    Not reached: other answers of the same content, messages still in the outbox, and the topics.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def erase_answer(self, key: AnswerKey) -> Erased:
        async def work(connection: AsyncConnection) -> Erased:
            return await _erase(connection, key, owner=None)

        return await self._database.run(work)

    async def erase_owner(self, tenant: TenantId, owner: OwnerId) -> Erased:
        """One answer a transaction; an interrupted erasure is taken up by calling it again."""
        attributions_count = letters_count = 0
        for answer_id in await self._answers_of(tenant, owner):
            erased = await self._erase_of(AnswerKey(tenant, answer_id), owner)
            attributions_count += erased.attributions
            letters_count += erased.dead_letters

        async def unsettled(connection: AsyncConnection) -> int:
            # Of answers that were never settled nobody knows the owners; the bytes that name this one go.
            named = func.strpos(
                func.encode(dead_letters.c.value, "escape"), func.encode(literal(owner.encode()), "escape")
            )
            return await _erase_letters(connection, (dead_letters.c.tenant == tenant) & (named > 0))

        return Erased(attributions_count, letters_count + await self._database.run(unsettled))

    async def _erase_of(self, key: AnswerKey, owner: OwnerId) -> Erased:
        async def work(connection: AsyncConnection) -> Erased:
            return await _erase(connection, key, owner)

        return await self._database.run(work)

    async def _answers_of(self, tenant: TenantId, owner: OwnerId) -> Sequence[AnswerId]:
        of = source_attributions.c
        query = select(of.answer_id).where(of.tenant == tenant, of.owner_id == owner).distinct().order_by(of.answer_id)

        async def work(connection: AsyncConnection) -> Sequence[AnswerId]:
            return list((await connection.execute(query)).scalars())

        return await self._database.run(work)


async def _erase(connection: AsyncConnection, key: AnswerKey, owner: OwnerId | None) -> Erased:
    of, sources = attributions.c, source_attributions.c
    columns = [of[name] for name in REVISION]
    mine = select(*columns, of.evidence).where(of.tenant == key.tenant, of.answer_id == key.answer_id)
    found = (await connection.execute(mine.with_for_update())).all()
    for *revision, document in found:
        erased = without_texts(document) if owner is None else without_texts_of(document, owner)
        here = [column == value for column, value in zip(columns, revision, strict=True)]
        await connection.execute(update(attributions).where(*here).values(evidence=erased))
    titles = update(source_attributions).where(sources.tenant == key.tenant, sources.answer_id == key.answer_id)
    if owner is not None:
        titles = titles.where(sources.owner_id == owner)
    await connection.execute(titles.values(title=None))
    await erase_responses(connection, [key])
    cached = reusable_judgements.c
    await connection.execute(
        delete(reusable_judgements).where(cached.tenant == key.tenant, cached.answer_id == key.answer_id)
    )
    theirs = (dead_letters.c.tenant == key.tenant) & (dead_letters.c.answer_id == key.answer_id)
    return Erased(len(found), await _erase_letters(connection, theirs))


async def _erase_letters(connection: AsyncConnection, which: ColumnElement[bool]) -> int:
    """Their bytes go; hash, size and reason stay. What was open is closed, for it cannot be replayed any more."""
    of = dead_letters.c
    changes = {
        "key": None,
        "value": None,
        "headers": b"",
        "state": func.replace(of.state, DeadLetterState.OPEN.value, DeadLetterState.DISCARDED.value),
        "resolved_at": func.coalesce(of.resolved_at, func.clock_timestamp()),
        "resolution_note": func.concat_ws("; ", of.resolution_note, NOTE),
    }
    holding = of.value.is_not(None) | of.key.is_not(None) | (of.headers != b"")
    return (await connection.execute(update(dead_letters).where(which, holding).values(changes))).rowcount
