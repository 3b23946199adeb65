"""The store's ports on dictionaries and lists that tests may read and change."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from worker.adapters.postgres.limits import RecentOutcomes, refusal
from worker.core.model import AnswerIdentity, AnswerKey, Attribution, Judgement, ReusedFrom, TenantId, Usage
from worker.core.outcome import Outcome
from worker.core.records import OutboundMessage, Record
from worker.core.reuse import is_judged, reuse_hash
from worker.errors import FatalError, RetryableError, UnavailableError
from worker.ports import DeadLetter, OutboxRow, SaveResult, SetAside, SettledAnswer
from worker.settings import DeadLetterSettings


class FakeStore:
    """AttributionStore, JudgementCache, DeadLetterStore and OutboxStore at once, as one database is.

    `down` makes every call raise UnavailableError; a key in `unstorable` cannot be saved, whatever its neighbours do.
    """

    def __init__(self, limits: DeadLetterSettings | None = None) -> None:
        self.limits = limits or DeadLetterSettings()
        self.down = False
        self.unstorable: set[AnswerKey] = set()
        self.attributions: dict[AnswerKey, Attribution] = {}
        self.dead_letters: list[DeadLetter] = []
        self.outbox: list[OutboxRow] = []
        self.resumes: list[str] = []
        self.finds = 0
        self.remembers_judgements = False
        self.judgements: dict[tuple[TenantId, bytes], Judgement] = {}
        self._outcomes: list[bool] = []
        self._claimed: set[int] = set()
        self._stored = 0

    async def find(self, key: AnswerKey, record: Record) -> SettledAnswer | SetAside | None:
        self._reach()
        self.finds += 1
        if self._is_set_aside(record):
            return SetAside()
        found = self.attributions.get(key)
        return None if found is None else SettledAnswer(found.answer.content_hash, found.revision)

    async def save(
        self, attribution: Attribution, message: OutboundMessage, record: Record | None = None
    ) -> SaveResult:
        self._reach()
        key = attribution.answer.key
        if record is not None and self._is_set_aside(record):
            return SaveResult.SET_ASIDE
        if key in self.unstorable:
            raise RetryableError("this attribution cannot be stored as it is")
        settled = self.attributions.get(key)
        if settled is not None:
            same = settled.answer.content_hash == attribution.answer.content_hash
            return SaveResult.DUPLICATE if same else SaveResult.CONFLICT
        self.attributions[key] = attribution
        self._remember(attribution)
        self._outcomes.append(False)
        self._announce(message)
        return SaveResult.SAVED

    async def find_judgement(self, tenant: TenantId, reuse_hash: bytes) -> Judgement | None:
        self._reach()
        return self.judgements.get((tenant, reuse_hash))

    async def save_dead_letter(self, dead_letter: DeadLetter, message: OutboundMessage) -> Outcome:
        self._reach()
        if _identity(dead_letter) in {_identity(kept) for kept in self.dead_letters}:
            return Outcome.DEAD_LETTER
        if self._is_settled(dead_letter.identity):
            return Outcome.DUPLICATE
        await self.check_dead_letter_limits()
        self.dead_letters.append(dead_letter)
        self._outcomes.append(True)
        self._announce(message)
        return Outcome.DEAD_LETTER

    async def check_dead_letter_limits(self) -> None:
        self._reach()
        latest = self._outcomes[-(self.limits.ratio_window - 1) :]
        answers_seen = [index for index, dead in enumerate(self._outcomes, 1) if not dead]
        consecutive = len(self._outcomes) - max(answers_seen, default=0)
        reason = refusal(RecentOutcomes(consecutive, sum(latest), len(latest)), self.limits)
        if reason is not None:
            raise FatalError(reason)

    async def resume(self, reason: str) -> None:
        self._reach()
        self.resumes.append(reason)
        self._outcomes.clear()

    @asynccontextmanager
    async def claim(self, rows_max: int) -> AsyncIterator[Sequence[OutboxRow]]:
        self._reach()
        rows = [row for row in self._heads() if row.outbox_id not in self._claimed][:rows_max]
        claimed = {row.outbox_id for row in rows}
        self._claimed |= claimed
        try:
            yield rows
            self._reach()
            self.outbox = [row for row in self.outbox if row.outbox_id not in claimed]
        finally:
            self._claimed -= claimed

    async def pending(self) -> int:
        self._reach()
        return len(self.outbox)

    def _is_set_aside(self, record: Record) -> bool:
        return any(_position(kept.record) == _position(record) for kept in self.dead_letters)

    def _is_settled(self, identity: AnswerIdentity) -> bool:
        settled = None if identity.key is None else self.attributions.get(identity.key)
        return settled is not None and settled.answer.content_hash == identity.content_hash

    def _heads(self) -> list[OutboxRow]:
        """The oldest row of each topic and key; rows without a key owe no order to one another."""
        heads: dict[tuple[str, bytes | int], OutboxRow] = {}
        for row in self.outbox:
            key = row.message.key if row.message.key is not None else row.outbox_id
            heads.setdefault((row.message.topic, key), row)
        return list(heads.values())

    def _remember(self, attribution: Attribution) -> None:
        answer, judgement = attribution.answer, attribution.judgement
        if self.remembers_judgements and judgement.reused_from is None and is_judged(answer):
            content = answer.key.tenant, reuse_hash(answer, attribution.method.method_hash)
            origin = ReusedFrom(answer.key.answer_id, attribution.revision)
            self.judgements[content] = replace(judgement, usage=Usage(), reused_from=origin)

    def _announce(self, message: OutboundMessage) -> None:
        self._stored += 1
        self.outbox.append(OutboxRow(self._stored, message))

    def _reach(self) -> None:
        if self.down:
            raise UnavailableError("the database is down")


def _identity(dead_letter: DeadLetter) -> tuple[str, int, int, bytes]:
    record = dead_letter.record
    return (record.topic, record.partition, record.offset, hashlib.sha256(record.value or b"").digest())


def _position(record: Record) -> tuple[str, int, int, int]:
    return (record.topic, record.partition, record.offset, record.timestamp_ms)
