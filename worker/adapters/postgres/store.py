"""The store's ports together, on one connection pool: what the composition root opens."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from worker.adapters.postgres.attribution_store import PostgresAttributionStore, open_attribution_store
from worker.adapters.postgres.budgets import PostgresBudgets, open_budgets
from worker.adapters.postgres.database import Database, errors_translated, open_database
from worker.adapters.postgres.dead_letter_store import PostgresDeadLetterStore
from worker.adapters.postgres.group_commit import Origin
from worker.adapters.postgres.journal import PostgresCallJournal, open_call_journal
from worker.adapters.postgres.outbox_store import PostgresOutboxStore
from worker.adapters.postgres.partitions import ensure_partitions, may_make_partitions, missing_partitions
from worker.adapters.postgres.reuse import PostgresJudgementCache, open_judgement_cache
from worker.core.model import AnswerKey, Attribution
from worker.core.outcome import Outcome
from worker.core.records import OutboundMessage, Record
from worker.ports import DeadLetter, OutboxRow, SaveResult, SetAside, SettledAnswer
from worker.settings import Settings
from worker.telemetry import log


class PostgresStore:
    """AttributionStore, DeadLetterStore, DeadLetterLimits and OutboxStore: each is kept by the part that does it."""

    def __init__(
        self,
        database: Database,
        attributions: PostgresAttributionStore,
        dead_letters: PostgresDeadLetterStore,
        outbox: PostgresOutboxStore,
    ) -> None:
        self.database = database
        self._attributions = attributions
        self._dead_letters = dead_letters
        self._outbox = outbox

    async def find(self, key: AnswerKey, record: Record) -> SettledAnswer | SetAside | None:
        return await self._attributions.find(key, record)

    async def save(
        self, attribution: Attribution, message: OutboundMessage, record: Record | None = None
    ) -> SaveResult:
        return await self._attributions.save(attribution, message, record)

    async def save_dead_letter(self, dead_letter: DeadLetter, message: OutboundMessage) -> Outcome:
        return await self._dead_letters.save_dead_letter(dead_letter, message)

    async def check_dead_letter_limits(self) -> None:
        await self._dead_letters.check_dead_letter_limits()

    async def resume(self, reason: str) -> None:
        await self._dead_letters.resume(reason)

    def claim(self, rows_max: int) -> AbstractAsyncContextManager[Sequence[OutboxRow]]:
        return self._outbox.claim(rows_max)

    async def pending(self) -> int:
        return await self._outbox.pending()

    async def ensure_partitions(self) -> list[str]:
        """To be called at start and daily; returns the names of new partitions.

        A role that is not the owner makes none, and says which are missing: their rows go to the default partition,
        from where the owner's next call moves them.

        Raises:
            UnavailableError: the database is down, or the tables stayed locked; try again later, nothing is lost.
        """
        engine, ahead_months = self.database.engine, self.database.settings.partitions_ahead_months
        with errors_translated():
            missing = await missing_partitions(engine, ahead_months=ahead_months)
            if not missing:
                return []
            if await may_make_partitions(engine):
                return await ensure_partitions(engine, ahead_months=ahead_months)
        log.warning("partitions.missing", names=missing, advice="run `attribution-worker migrate` as the owner")
        return []


@dataclass(frozen=True, slots=True)
class LlmAccounts:
    """What a language model's judge keeps in the database: its calls, what they may cost, and what need not be bought.

    `judgements` is None where nothing is copied: reuse is off, or the texts that a copy needs are not stored.
    """

    journal: PostgresCallJournal
    budgets: PostgresBudgets
    judgements: PostgresJudgementCache | None

    async def sweep(self) -> int:
        """For the start and once a day; returns how many calls of dead workers became `unknown`.

        Raises:
            UnavailableError: the database is down; try again later, nothing is lost.
        """
        await self.budgets.sweep()
        if self.judgements is not None:
            await self.judgements.sweep()
        return await self.journal.sweep()


@asynccontextmanager
async def open_llm_accounts(store: PostgresStore, settings: Settings) -> AsyncIterator[LlmAccounts]:
    """On the store's connections; leaving it finishes what was submitted. Enter and leave it in one task."""
    database = store.database
    async with (
        open_call_journal(database, settings.store_text) as journal,
        open_budgets(database, settings.budgets) as budgets,
        open_judgement_cache(database, settings.reuse) as judgements,
    ):
        yield LlmAccounts(journal, budgets, judgements if settings.copies_judgements else None)


@asynccontextmanager
async def open_store(
    settings: Settings, *, code_version: str, remembers_judgements: bool = False
) -> AsyncIterator[PostgresStore]:
    """A store that works as long as the context; leaving it finishes what was submitted and closes every connection.

    Nothing is connected before the first call. With `remembers_judgements` a save enters its judgement for the
    `JudgementCache`, where the settings let it be copied: for judges that cost more than the look-up. Enter and leave
    it in one task.
    """
    topic = settings.kafka.answers_topic
    remembers = remembers_judgements and settings.copies_judgements
    origin = Origin(topic, code_version, settings.store_text, remembers)
    async with open_database(settings.postgres) as database, open_attribution_store(database, origin) as attributions:
        dead_letters = PostgresDeadLetterStore(database, settings.dead_letters, topic=topic, code_version=code_version)
        yield PostgresStore(database, attributions, dead_letters, PostgresOutboxStore(database, leaves=topic))
