"""Many saves in one transaction: claim the keys, then write the winners' rows in bulk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres import rows
from worker.adapters.postgres.bulk import arrays_of, copy_rows, insert_unnested, unnested
from worker.adapters.postgres.dead_letter_positions import Position, find_set_aside, lock_shared
from worker.adapters.postgres.journal import erase_responses
from worker.adapters.postgres.reuse import remember_judgements
from worker.adapters.postgres.tables import answers
from worker.core.model import AnswerKey, Attribution
from worker.core.records import OutboundMessage
from worker.errors import UnavailableError
from worker.ports import SaveResult, SettledAnswer
from worker.settings import TextStorage


@dataclass(frozen=True, slots=True)
class Save:
    """One attribution, the message that announces it, and where its record stands."""

    attribution: Attribution
    message: OutboundMessage
    position: Position | None = None

    @property
    def key(self) -> AnswerKey:
        return self.attribution.answer.key


@dataclass(frozen=True, slots=True)
class Origin:
    """What every row of this store has in common."""

    topic: str
    code_version: str
    texts: TextStorage
    remembers_judgements: bool = False


KEY_COLUMNS = [answers.c.tenant, answers.c.answer_id]
CLAIM = (
    insert_unnested(rows.ANSWER_COLUMNS)
    .on_conflict_do_nothing(index_elements=KEY_COLUMNS)
    .returning(answers.c.tenant, answers.c.answer_id)
)
INSERT_METHODS = insert_unnested(rows.METHOD_COLUMNS).on_conflict_do_nothing()

_wanted = unnested(KEY_COLUMNS)
FIND = select(answers.c.tenant, answers.c.answer_id, answers.c.content_hash, answers.c.revision).join(
    _wanted, (answers.c.tenant == _wanted.c.tenant) & (answers.c.answer_id == _wanted.c.answer_id)
)


async def find_settled(connection: AsyncConnection, keys: Sequence[AnswerKey]) -> Mapping[AnswerKey, SettledAnswer]:
    """The settled ones among these keys."""
    found = await connection.execute(FIND, arrays_of(KEY_COLUMNS, [(key.tenant, key.answer_id) for key in keys]))
    return {
        AnswerKey(tenant, answer_id): SettledAnswer(hash_, revision) for tenant, answer_id, hash_, revision in found
    }


async def write_batch(
    connection: AsyncConnection, saves: Sequence[Save], origin: Origin, known_methods: frozenset[bytes]
) -> Sequence[SaveResult]:
    """Write what is new of these saves; a result for each, in their order."""
    await lock_shared(connection, origin.topic)
    positions = [save.position for save in saves if save.position is not None]
    set_aside = await find_set_aside(connection, origin.topic, positions) if positions else frozenset[Position]()
    wanted = [save for save in saves if save.position not in set_aside]
    results = iter(await _write_wanted(connection, wanted, origin, known_methods) if wanted else ())
    return [SaveResult.SET_ASIDE if save.position in set_aside else next(results) for save in saves]


async def _write_wanted(
    connection: AsyncConnection, saves: Sequence[Save], origin: Origin, known_methods: frozenset[bytes]
) -> Sequence[SaveResult]:
    """Claim the keys, and write the winners.

    The first save of a key in the batch is its candidate; the others meet what it, or someone before it, has settled.
    """
    candidates: dict[AnswerKey, Save] = {}
    for save in saves:
        candidates.setdefault(save.key, save)
    # In one order everywhere, down to the wire: two batches that share keys in two orders would deadlock.
    ordered = [candidates[key] for key in sorted(candidates)]
    methods = {save.attribution.method.method_hash: save.attribution.method for save in ordered}
    new_methods = [methods[hash_] for hash_ in sorted(methods.keys() - known_methods)]
    if new_methods:
        await connection.execute(INSERT_METHODS, rows.method_arrays(new_methods))
    claimed = await connection.execute(CLAIM, rows.answer_arrays([save.attribution for save in ordered], origin.topic))
    won = {AnswerKey(tenant, answer_id) for tenant, answer_id in claimed}
    winners = [save for save in ordered if save.key in won]
    if winners:
        await _write_winners(connection, winners, origin)
    settled_before = [key for key in candidates if key not in won]
    settled = dict(await find_settled(connection, settled_before)) if settled_before else {}
    return [
        SaveResult.SAVED if save.key in won and candidates[save.key] is save else _met(save, candidates, won, settled)
        for save in saves
    ]


async def _write_winners(connection: AsyncConnection, winners: Sequence[Save], origin: Origin) -> None:
    settled = [save.attribution for save in winners]
    attributions = rows.attribution_rows(settled, origin.code_version, origin.texts)
    await copy_rows(connection, rows.ATTRIBUTION_COLUMNS, attributions)
    await copy_rows(connection, rows.SOURCE_COLUMNS, rows.source_rows(settled, origin.texts))
    await copy_rows(connection, rows.OUTBOX_COLUMNS, rows.outbox_rows([save.message for save in winners]))
    if origin.remembers_judgements:
        await remember_judgements(connection, settled)
    if origin.texts is TextStorage.HASH:
        await erase_responses(connection, [item.answer.key for item in settled if item.judgement.usage.calls])


def _met(
    save: Save,
    candidates: Mapping[AnswerKey, Save],
    won: frozenset[AnswerKey] | set[AnswerKey],
    settled: Mapping[AnswerKey, SettledAnswer],
) -> SaveResult:
    if save.key in won:
        content_hash = candidates[save.key].attribution.answer.content_hash
    elif save.key in settled:
        content_hash = settled[save.key].content_hash
    else:
        raise UnavailableError("a settled answer vanished between two statements; the save must be done again")
    return SaveResult.DUPLICATE if content_hash == save.attribution.answer.content_hash else SaveResult.CONFLICT
