"""Erased texts leave every number as it was, and recomputable."""

from dataclasses import replace

import pytest
from pydantic import SecretStr

from schemas.dead_letter import DeadLetterReason
from tests.support import lines, samples
from tests.support.attributions import attribution_of, message_of
from worker.adapters.postgres.audit import Audit
from worker.adapters.postgres.dead_letter_desk import DeadLetterDesk, Resolution
from worker.adapters.postgres.erasure import Erased, Erasure
from worker.adapters.postgres.store import PostgresStore, open_store
from worker.core.model import (
    Answer,
    AnswerId,
    AnswerIdentity,
    AnswerKey,
    KeyPoint,
    OwnerId,
    Quote,
    Source,
    SourceId,
    TenantId,
)
from worker.core.records import OutboundMessage
from worker.ports import DeadLetter
from worker.settings import PostgresSettings, Settings

pytestmark = pytest.mark.postgres

TENANT = TenantId("default")
MONEY = (
    "SELECT tenant, answer_id, source_id, owner_id, credit_units, share_units FROM source_attributions ORDER BY 1, 2, 3"
)
EVERYTHING = (
    "SELECT concat((SELECT string_agg(t::text, '') FROM attributions t), (SELECT string_agg(t::text, '') FROM "
    "source_attributions t), (SELECT string_agg(encode(value, 'escape'), '') FROM dead_letters))"
)


def answer(answer_id: str) -> Answer:
    """Its words are its own: `query of a-1`, `answer of a-1`."""
    sources = tuple(
        Source(SourceId(f"s{n}"), f"text {n}", OwnerId(f"owner-{n}"), title=f"title {n} of {answer_id}")
        for n in range(2)
    )
    given = samples.answer(answer_id)
    return replace(given, query=f"query of {answer_id}", text=f"answer of {answer_id}", sources=sources)


async def settle(store: PostgresStore, answer_id: str) -> None:
    quotes = {(0, n): Quote(f"quote {n} of {answer_id}") for n in range(2)}
    judgement = replace(
        samples.judgement([[10_000, 7_000]]), key_points=(KeyPoint(f"key point of {answer_id}"),), quotes=quotes
    )
    attribution = attribution_of(answer(answer_id), judgement)
    await store.save(attribution, message_of(attribution))


async def set_aside(store: PostgresStore, answer_id: str, offset: int, value: bytes) -> None:
    key = AnswerKey(TENANT, AnswerId(answer_id))
    letter = DeadLetter(
        samples.record(value, offset=offset), DeadLetterReason.JUDGE_REFUSED, "refused", 1, AnswerIdentity(key)
    )
    await store.save_dead_letter(letter, OutboundMessage("answers.dead-letter", None, None))


async def verified(store: PostgresStore) -> list[object]:
    return [finding.differences async for finding in Audit(store.database).verify(None)]


def settings_of(dsn: str) -> Settings:
    return Settings(postgres=PostgresSettings(dsn=SecretStr(dsn)))


async def test_an_answers_texts_go_and_its_shares_stay_verifiable(postgres_dsn: str) -> None:
    async with open_store(settings_of(postgres_dsn), code_version="test") as store:
        await settle(store, "a-1")
        await settle(store, "a-2")
        await set_aside(store, "a-1", 7, b"event of a-1")
        before = await lines.rows(postgres_dsn, MONEY)
        erasure, key = Erasure(store.database), AnswerKey(TENANT, AnswerId("a-1"))

        assert await erasure.erase_answer(key) == Erased(attributions=1, dead_letters=1)

        told = await lines.value(postgres_dsn, EVERYTHING)
        assert "of a-1" not in told
        for word in ("query", "answer", "key point", "quote 0", "quote 1", "title 0"):
            assert f"{word} of a-2" in told
        assert await lines.rows(postgres_dsn, MONEY) == before
        assert await verified(store) == [(), ()]
        after = await lines.value(postgres_dsn, EVERYTHING)
        assert await erasure.erase_answer(key) == Erased(attributions=1, dead_letters=0)
        assert await lines.value(postgres_dsn, EVERYTHING) == after


async def test_an_erased_dead_letter_is_closed_and_says_so(postgres_dsn: str) -> None:
    async with open_store(settings_of(postgres_dsn), code_version="test") as store:
        await set_aside(store, "a-1", 7, b"event of a-1")
        await Erasure(store.database).erase_answer(AnswerKey(TENANT, AnswerId("a-1")))
        [row] = await lines.rows(postgres_dsn, "SELECT * FROM dead_letters")
        assert (row["state"], row["resolution_note"], row["value"]) == ("discarded", "texts erased", None)
        desk = DeadLetterDesk(store.database)
        assert await desk.replay(row["dead_letter_id"], to_topic="answers", note=None) is Resolution.NOT_OPEN


async def test_an_owners_texts_go_from_every_answer_and_the_others_stay(postgres_dsn: str) -> None:
    async with open_store(settings_of(postgres_dsn), code_version="test") as store:
        await settle(store, "a-1")
        await settle(store, "a-2")
        await set_aside(store, "never settled", 7, b'{"owner_id": "owner-0"}')
        await set_aside(store, "never settled", 8, b'{"owner_id": "owner-1", "path": "\\x5c"}')
        before = await lines.rows(postgres_dsn, MONEY)
        erasure = Erasure(store.database)

        assert await erasure.erase_owner(TENANT, OwnerId("owner-0")) == Erased(attributions=2, dead_letters=1)

        told = await lines.value(postgres_dsn, EVERYTHING)
        assert "quote 0" not in told
        assert "title 0" not in told
        for word in ("query", "answer", "key point", "quote 1", "title 1"):
            assert f"{word} of a-1" in told
        assert await lines.rows(postgres_dsn, MONEY) == before
        assert await verified(store) == [(), ()]
        await erasure.erase_answer(AnswerKey(TENANT, AnswerId("a-1")))
        hashes = await lines.rows(
            postgres_dsn, "SELECT evidence -> 'quotes' -> 0 ->> 3 AS h FROM attributions ORDER BY 1"
        )
        assert len({row["h"] for row in hashes}) == 2
        assert await erasure.erase_owner(TENANT, OwnerId("owner-0")) == Erased(attributions=2, dead_letters=0)
        again = await lines.rows(
            postgres_dsn, "SELECT evidence -> 'quotes' -> 0 ->> 3 AS h FROM attributions ORDER BY 1"
        )
        assert again == hashes, "a hash is not hashed again"
