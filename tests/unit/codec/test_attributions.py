import json
from dataclasses import replace
from datetime import timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.attribution_computed import AttributionComputed
from tests.unit.codec.attributions import COMPUTED_AT, PUBLISHED, attributions
from tests.unit.schemas.examples import DIRECTORY
from worker.codec import encode_attribution, event_id, message_key
from worker.core.model import UNIT_SCALE, AnswerId, AnswerKey, Attribution, TenantId
from worker.core.records import OutboundMessage


def encode(attribution: Attribution) -> OutboundMessage:
    return encode_attribution(
        attribution,
        topic="attributions",
        source_uri="urn:attribution-worker:demo",
        code_version="0.1.0",
        computed_at=COMPUTED_AT,
    )


def read(message: OutboundMessage) -> AttributionComputed:
    assert message.value is not None
    return AttributionComputed.model_validate_json(message.value)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_published_event_is_the_golden_example(name: str) -> None:
    message = encode(PUBLISHED[name])
    assert message.key is not None
    assert message.value is not None
    published = {
        "key": message.key.decode(),
        "headers": {header: (value or b"").decode() for header, value in message.headers},
        "value": json.loads(message.value),
    }
    assert published == json.loads((DIRECTORY / "published" / f"{name}.json").read_text(encoding="utf-8"))


@given(attributions())
def test_units_money_and_identity_survive_the_wire(attribution: Attribution) -> None:
    computed = read(encode(attribution))
    assert [(s.source_id, s.owner_id, s.credit_units, s.share_units) for s in computed.sources] == [
        (c.source_id, c.owner_id, c.credit_units, c.share_units) for c in attribution.source_credits
    ]
    assert (computed.tenant, computed.answer_id) == (attribution.answer.key.tenant, attribution.answer.key.answer_id)
    assert computed.status.value == attribution.status.value
    assert bytes.fromhex(computed.method.method_hash) == attribution.method.method_hash
    assert bytes.fromhex(computed.content_hash) == attribution.answer.content_hash
    assert computed.occurred_at == attribution.answer.occurred_at
    cost, reward = attribution.judgement.usage.cost_usd, attribution.answer.reward
    assert (None if computed.llm_usage.cost_usd is None else Decimal(computed.llm_usage.cost_usd)) == cost
    assert (None if computed.reward is None else Decimal(computed.reward.amount)) == (reward and reward.amount)


@given(attributions())
def test_owners_earn_what_their_sources_earn_together(attribution: Attribution) -> None:
    computed = read(encode(attribution))
    for owner in computed.owners:
        owned = [source for source in computed.sources if source.owner_id == owner.owner_id]
        assert owner.source_count == len(owned)
        assert owner.share_units == sum(source.share_units for source in owned)
        assert owner.credit_units == sum(source.credit_units for source in owned)
    assert {owner.owner_id for owner in computed.owners} == {source.owner_id for source in computed.sources}


@given(attributions())
def test_the_same_attribution_is_the_same_bytes_in_any_zone(attribution: Attribution) -> None:
    elsewhere = COMPUTED_AT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    again = encode_attribution(
        attribution,
        topic="attributions",
        source_uri="urn:attribution-worker:demo",
        code_version="0.1.0",
        computed_at=elsewhere,
    )
    assert again == encode(attribution)


def test_an_attribution_that_does_not_add_up_is_a_bug_and_not_a_message() -> None:
    attributed = PUBLISHED["attributed"]
    first, *others = attributed.source_credits
    overpaid = replace(first, share_units=first.share_units + 1)
    with pytest.raises(ValueError, match=f"share_units of sources must add up to {UNIT_SCALE}"):
        encode(replace(attributed, source_credits=(overpaid, *others)))


def test_a_trace_is_carried_on_and_never_invented() -> None:
    traced, untraced = encode(PUBLISHED["attributed"]), encode(PUBLISHED["no-sources"])
    assert dict(traced.headers)["traceparent"] == b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert "traceparent" not in dict(untraced.headers)


def key(tenant: str, answer_id: str) -> AnswerKey:
    return AnswerKey(TenantId(tenant), AnswerId(answer_id))


def test_the_event_id_never_changes_between_releases() -> None:
    assert event_id(key("default", "a-1"), 1) == UUID("1b39032c-1300-5f78-9f2d-f9c37820c454")


keys = st.builds(key, st.text(max_size=5), st.text(max_size=5))


@given(keys, st.integers(1, 3), keys, st.integers(1, 3))
def test_ids_and_keys_are_equal_only_for_the_same_answer(
    one: AnswerKey, one_revision: int, other: AnswerKey, other_revision: int
) -> None:
    assert (message_key(one) == message_key(other)) == (one == other)
    same_event = (one, one_revision) == (other, other_revision)
    assert (event_id(one, one_revision) == event_id(other, other_revision)) == same_event


@pytest.mark.parametrize(
    ("one", "other"),
    [(key("a", "b,c"), key("a,b", "c")), (key('a","b', "c"), key("a", 'b","c')), (key("a", "11"), key("a1", "1"))],
)
def test_separators_in_identifiers_do_not_make_two_answers_one(one: AnswerKey, other: AnswerKey) -> None:
    assert message_key(one) != message_key(other)
    assert event_id(one, 1) != event_id(other, 1)
    assert event_id(key("a", "1"), 11) != event_id(key("a", "11"), 1)
