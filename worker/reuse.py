"""The same content is judged once: cached answers are served all day, and twins may be in flight together."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from worker.core.model import Answer, AnswerKey, Judgement, ReusedFrom, TenantId, Usage
from worker.core.reuse import is_judged, reuse_hash
from worker.ports import JudgementCache
from worker.telemetry import Telemetry

RECENT_MAX = 256
"""Judgements kept in memory until the database has surely learnt of them."""

FIRST_REVISION = 1

Content: TypeAlias = tuple[TenantId, bytes]


@dataclass(slots=True, eq=False)
class Judging:
    """One content being judged now, or judged lately; `judgement` stays None when judging failed."""

    key: AnswerKey
    judgement: Judgement | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class ReuseJudgements:
    """Copies a judgement of the same tenant, content and method, with its origin; else has it judged."""

    def __init__(
        self,
        judge: Callable[[Answer], Awaitable[Judgement]],
        *,
        cache: JudgementCache,
        method_hash: bytes,
        telemetry: Telemetry,
    ) -> None:
        self._judge = judge
        self._cache = cache
        self._method_hash = method_hash
        self._telemetry = telemetry
        self._judgings: OrderedDict[Content, Judging] = OrderedDict()

    @property
    def remembered(self) -> int:
        """Contents judged now or lately."""
        return len(self._judgings)

    async def __call__(self, answer: Answer) -> Judgement:
        """A judgement of this answer; a copied one costs nothing. Raises what the judge and the cache raise."""
        if not is_judged(answer):
            return await self._judge(answer)
        content = (answer.key.tenant, reuse_hash(answer, self._method_hash))
        while (twin := self._judgings.get(content)) is not None:
            await twin.ended.wait()
            if twin.judgement is not None:
                return self._copied(twin.judgement, twin.key, answer.key)
            # It failed, perhaps by its own fault: this answer is judged for itself, unless another twin was faster.
        return await self._judge_for_all(answer, content)

    async def _judge_for_all(self, answer: Answer, content: Content) -> Judgement:
        judging = self._judgings[content] = Judging(answer.key)
        try:
            judging.judgement = await self._cache.find_judgement(*content)
            if judging.judgement is not None:
                self._telemetry.judgement_reused()
            else:
                judging.judgement = await self._judge(answer)
            return judging.judgement
        finally:
            if not _is_by_the_configured_judge(judging.judgement):
                del self._judgings[content]
            judging.ended.set()
            self._forget_old()

    def _copied(self, judgement: Judgement, origin: AnswerKey, key: AnswerKey) -> Judgement:
        if origin == key:
            return judgement  # the same record delivered twice: one of the two saves will find the other's
        self._telemetry.judgement_reused()
        reused_from = judgement.reused_from or ReusedFrom(origin.answer_id, FIRST_REVISION)
        return replace(judgement, usage=Usage(), reused_from=reused_from)

    def _forget_old(self) -> None:
        ended = [content for content, judging in self._judgings.items() if judging.ended.is_set()]
        for content in ended[: max(0, len(self._judgings) - RECENT_MAX)]:
            del self._judgings[content]


def _is_by_the_configured_judge(judgement: Judgement | None) -> bool:
    """One that a fallback made is copied to those who waited for it, not to later ones, who may find the judge well."""
    return judgement is not None and judgement.profile is None
