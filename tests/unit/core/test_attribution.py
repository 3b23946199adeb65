from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from worker.core.attribution import attribute, coverages, ungrounded_key_points
from worker.core.credit import compute_credit
from worker.core.method import build_method
from worker.core.model import (
    UNIT_SCALE,
    Answer,
    AnswerId,
    AnswerKey,
    Attribution,
    Judgement,
    JudgeProfile,
    KeyPoint,
    OwnerId,
    Quote,
    Source,
    SourceId,
    Status,
    TenantId,
)
from worker.core.policy import Grouping, Policy

OWNERS = ("a", "a", None)
SUPPORTS = ((10_000, 10_000, 5_000), (0, 3_000, 7_000), (0, 0, 2_999))


def answer(*owners: str | None) -> Answer:
    return Answer(
        key=AnswerKey(TenantId("t"), AnswerId("1")),
        occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
        query="q",
        text="an answer",
        sources=tuple(
            Source(SourceId(f"s{i}"), "text", owner_id=None if owner is None else OwnerId(owner))
            for i, owner in enumerate(owners)
        ),
        content_hash=b"",
    )


def judgement(*supports: tuple[int, ...], weights: tuple[int, ...] | None = None) -> Judgement:
    return Judgement(
        key_points=tuple(KeyPoint(f"p{i}", weight) for i, weight in enumerate(weights or (1,) * len(supports))),
        supports=supports,
        quotes={(j, i): Quote("q") for j, row in enumerate(supports) for i, support in enumerate(row) if support},
        grounding_threshold=3_000,
    )


def attributed(
    of: Answer,
    judged: Judgement,
    policy: Policy = Policy.max(),  # noqa: B008 - frozen
    grouping: Grouping = Grouping.SOURCE,
) -> Attribution:
    judge = JudgeProfile(name="local", version="1")
    method = build_method(policy=policy, grouping=grouping, judge=judge, grounding_threshold=3_000)
    return attribute(of, judged, method, policy=policy, grouping=grouping)


@pytest.mark.parametrize(
    ("owners", "supports", "status"),
    [
        ((), (), Status.NO_SOURCES),
        ((), ((), ()), Status.NO_SOURCES),
        (OWNERS, (), Status.NO_KEY_POINTS),
        (OWNERS, ((0, 0, 0), (0, 0, 0)), Status.UNGROUNDED),
        (OWNERS, ((0, 0, 0), (0, 1, 0)), Status.ATTRIBUTED),
    ],
)
def test_every_answer_has_its_status(
    owners: tuple[str | None, ...], supports: tuple[tuple[int, ...], ...], status: Status
) -> None:
    result = attributed(answer(*owners), judgement(*supports))
    assert result.status is status
    assert [credit.source_id for credit in result.source_credits] == [f"s{i}" for i in range(len(owners))]
    shared = sum(credit.share_units for credit in result.source_credits)
    assert shared == (UNIT_SCALE if status is Status.ATTRIBUTED else 0)
    assert result.utility_units + result.residual_units == UNIT_SCALE


def test_a_support_too_small_for_one_unit_of_utility_is_still_attributed() -> None:
    result = attributed(answer("a"), judgement((1,), (0,), weights=(1, 10**12)))
    assert (result.status, result.utility_units) == (Status.ATTRIBUTED, 0)
    assert result.source_credits[0].share_units == UNIT_SCALE


@pytest.mark.parametrize("policy", [Policy.max(), Policy.top_k(2), Policy.rank_weighted(("1", "1/2"))])
def test_plain_credit_stands_beside_the_grouped_one(policy: Policy) -> None:
    result = attributed(answer(*OWNERS), judgement(*SUPPORTS, weights=(1, 2, 3)), policy, Grouping.OWNER)
    plain = compute_credit(SUPPORTS, (1, 2, 3), policy=policy)
    grouped = compute_credit(SUPPORTS, (1, 2, 3), owners=OWNERS, policy=policy, grouping=Grouping.OWNER)
    assert plain != grouped
    earned = result.source_credits
    assert tuple(credit.credit_units for credit in earned) == grouped.credit_units
    assert tuple(credit.share_units for credit in earned) == grouped.share_units
    assert tuple(credit.plain_credit_units for credit in earned) == plain.credit_units
    assert tuple(credit.plain_share_units for credit in earned) == plain.share_units
    assert tuple(credit.owner_id for credit in earned) == OWNERS


def test_without_grouping_both_pairs_are_the_plain_ones() -> None:
    for credit in attributed(answer(*OWNERS), judgement(*SUPPORTS)).source_credits:
        assert (credit.credit_units, credit.share_units) == (credit.plain_credit_units, credit.plain_share_units)


def test_a_key_point_below_the_grounding_threshold_is_ungrounded() -> None:
    judged = judgement((10_000, 0), (0, 3_000), (2_999, 0), (0, 0))
    assert coverages(judged) == (10_000, 3_000, 2_999, 0)
    assert [key_point.text for key_point in ungrounded_key_points(judged)] == ["p2", "p3"]
    assert coverages(judgement((), ())) == (0, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"quotes": {(0, 0): Quote("q")}}, r"\(0, 1\) has no quote: no support without evidence"),
        ({"quotes": {(0, 0): Quote("q"), (0, 1): Quote("")}}, r"\(0, 1\) has no quote"),
        ({"quotes": {(0, 0): Quote("q"), (0, 1): Quote("q"), (1, 0): Quote("q")}}, r"evidence for \(1, 0\)"),
        ({"quotes": {(0, 0): Quote("q"), (0, 1): Quote("q"), (0, -1): Quote("q")}}, r"evidence for \(0, -1\)"),
        ({"unevidenced": {(0, 7): 3_000}}, r"evidence for \(0, 7\)"),
        ({"unevidenced": {(0, 1): 3_000}}, r"\(0, 1\) counts as unevidenced but has a support"),
        ({"supports": ((10_000, 7_000),)}, "row 0 has 2 supports for 3 sources"),
        ({"supports": ()}, "0 rows of supports for 1 key points"),
        ({"supports": ((10_000, 10_001, 0),)}, r"supports\[0\]\[1\] is 10001"),
        ({"supports": ((10_000, 0.7, 0),)}, r"supports\[0\]\[1\] is 0.7"),
        ({"key_points": (KeyPoint("p", 0),)}, r"weights\[0\] is 0"),
    ],
)
def test_a_judgement_that_is_none_of_this_answer_is_never_a_number(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attributed(answer(*OWNERS), replace(judgement((10_000, 7_000, 0)), **change))


def test_a_method_that_names_other_rules_is_refused() -> None:
    judge = JudgeProfile(name="local", version="1")
    method = build_method(policy=Policy.top_k(2), grouping=Grouping.SOURCE, judge=judge, grounding_threshold=3_000)
    for policy, grouping in ((Policy.top_k(3), Grouping.SOURCE), (Policy.top_k(2), Grouping.OWNER)):
        with pytest.raises(ValueError, match="mislabelled"):
            attribute(answer("a"), judgement((1,)), method, policy=policy, grouping=grouping)
