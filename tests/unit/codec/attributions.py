"""Attributions to encode: those of the published golden examples, and any that obeys the laws."""

from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import strategies as st

from worker.codec import content_hash
from worker.core.model import (
    UNIT_SCALE,
    Answer,
    AnswerId,
    AnswerKey,
    Attribution,
    Judgement,
    KeyPoint,
    Method,
    OwnerId,
    Reward,
    Source,
    SourceCredit,
    SourceId,
    Status,
    TenantId,
    Usage,
)

COMPUTED_AT = datetime(2026, 6, 1, 12, 0, 0, 250_000, tzinfo=UTC)
METHOD = Method(bytes(range(32)), {"utility": "max_sum", "policy": "max", "grouping": "owner", "models": ["judge-1"]})
_OWNERS = (OwnerId("encyclopedia"), None, OwnerId("encyclopedia"), OwnerId("paris-daily"))
_REWARD = Reward(Decimal("0.012500"), "EUR")


def _answer(sources: tuple[Source, ...], reward: Reward | None = None, traceparent: str | None = None) -> Answer:
    text = "Maurice Koechlin designed it. It opened in 1889."
    return Answer(
        key=AnswerKey(TenantId("search-eu"), AnswerId("answer-0002")),
        occurred_at=datetime(2026, 5, 31, 9, 30, tzinfo=UTC),
        query="Who designed the Eiffel Tower?",
        text=text,
        sources=sources,
        content_hash=content_hash("Who designed the Eiffel Tower?", text, sources, reward),
        reward=reward,
        traceparent=traceparent,
    )


def _sources(owners: tuple[OwnerId | None, ...]) -> tuple[Source, ...]:
    return tuple(Source(SourceId(f"s{i}"), f"Text {i}.", owner) for i, owner in enumerate(owners))


def attribution_of(
    status: Status,
    owners: tuple[OwnerId | None, ...],
    credit_units: tuple[int, ...],
    share_units: tuple[int, ...],
    *,
    usage: Usage | None = None,
    reward: Reward | None = None,
    traceparent: str | None = None,
    revision: int = 1,
) -> Attribution:
    sources = _sources(owners)
    utility_units = sum(credit_units)
    earned = zip(sources, credit_units, share_units, strict=True)
    return Attribution(
        answer=_answer(sources, reward, traceparent),
        status=status,
        method=METHOD,
        judgement=Judgement((KeyPoint("a"), KeyPoint("b")), (), {}, 3_000, usage=usage or Usage()),
        utility_units=utility_units,
        residual_units=UNIT_SCALE - utility_units,
        source_credits=tuple(SourceCredit(s.source_id, s.owner_id, c, h, c, h) for s, c, h in earned),
        revision=revision,
    )


PUBLISHED = {
    "attributed": attribution_of(
        Status.ATTRIBUTED,
        _OWNERS,
        (416_666_666_667, 83_333_333_333, 350_000_000_000, 0),
        (490_196_078_432, 98_039_215_686, 411_764_705_882, 0),
        usage=Usage(2, 1_843, 1_024, 0, 312, 0, Decimal("0.0041270000")),
        reward=_REWARD,
        traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
    "superseding": attribution_of(Status.ATTRIBUTED, (None,), (300_000_000_000,), (UNIT_SCALE,), revision=3),
    "ungrounded-unpriced": attribution_of(
        Status.UNGROUNDED, _OWNERS, (0,) * 4, (0,) * 4, usage=Usage(1, 900, 0, 0, 80, 0, None)
    ),
    "no-sources": attribution_of(Status.NO_SOURCES, (), (), ()),
}


@st.composite
def attributions(draw: st.DrawFn) -> Attribution:
    """Any attribution whose sums are exact."""
    owners = draw(st.lists(st.sampled_from([None, OwnerId("a"), OwnerId("b")]), min_size=1, max_size=8))
    weights = draw(st.lists(st.integers(0, 10_000), min_size=len(owners), max_size=len(owners)))
    utility_units = draw(st.integers(1, UNIT_SCALE))
    if not any(weights):
        return attribution_of(Status.UNGROUNDED, tuple(owners), (0,) * len(owners), (0,) * len(owners))
    credit_units, share_units = (_split(total, weights) for total in (utility_units, UNIT_SCALE))
    reward = st.builds(Reward, st.decimals(0, 10**9, places=6).map(abs), st.just("EUR"))
    cost = st.none() | st.decimals(0, 100, places=10).map(abs)
    return attribution_of(
        Status.ATTRIBUTED,
        tuple(owners),
        credit_units,
        share_units,
        usage=Usage(cost_usd=draw(cost)),
        reward=draw(st.none() | reward),
        revision=draw(st.integers(1, 5)),
    )


def _split(total: int, weights: list[int]) -> tuple[int, ...]:
    units = [total * weight // sum(weights) for weight in weights]
    units[weights.index(max(weights))] += total - sum(units)
    return tuple(units)
