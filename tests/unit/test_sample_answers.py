"""Each sample answer shows what it is there for: with the local judge and the worker's own decoding and credit."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

import worker.demo
from worker.codec.answers import decode_answer
from worker.core.attribution import attribute, ungrounded_key_points
from worker.core.local.judging import GROUNDING_THRESHOLD, judging, profile_of
from worker.core.local.steps import returned
from worker.core.method import build_method
from worker.core.model import UNIT_SCALE, Attribution, Status
from worker.core.policy import MAX, Grouping
from worker.core.records import Record
from worker.settings import IntakeSettings

SAMPLES = Path(worker.demo.__file__).with_name("sample_answers.jsonl")
LIMITS = IntakeSettings()
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def attributions(grouping: Grouping) -> dict[str, Attribution]:
    """Every sample attributed as the worker would, by answer id without its tenant."""
    method = build_method(policy=MAX, grouping=grouping, judge=profile_of(64), grounding_threshold=GROUNDING_THRESHOLD)
    results: dict[str, Attribution] = {}
    for offset, line in enumerate(SAMPLES.read_bytes().splitlines()):
        decoded = decode_answer(Record("answers", 0, offset, 0, None, line), limits=LIMITS, now=NOW)
        assert (decoded.unknown_field_count, decoded.scrubbed_count) == (0, 0)
        answer = decoded.answer
        results[answer.key.answer_id] = attribute(
            answer, returned(judging(answer, 64)), method, policy=MAX, grouping=grouping
        )
    return results


@pytest.fixture(scope="module")
def samples() -> Mapping[str, Attribution]:
    return attributions(Grouping.SOURCE)


def shares(attribution: Attribution) -> list[float]:
    return [credit.share_units / UNIT_SCALE for credit in attribution.source_credits]


def test_about_a_dozen_answers_each_with_its_own_id_in_several_tenants(samples: Mapping[str, Attribution]) -> None:
    assert len(samples) == len(SAMPLES.read_bytes().splitlines()) == 14
    assert {sample.answer.key.tenant for sample in samples.values()} == {"default", "lumen", "kompass"}


def test_owners_come_back_across_answers_and_some_sources_have_none(samples: Mapping[str, Attribution]) -> None:
    paid = Counter(
        credit.owner_id for sample in samples.values() for credit in sample.source_credits if credit.credit_units
    )
    assert {owner for owner, times in paid.items() if times >= 3} >= {
        "open-almanac",
        "ellery-courier",
        "northline-wire",
    }
    assert paid[None] > 0


def test_complementary_sources_each_carry_a_key_point_and_an_irrelevant_one_earns_nothing(
    samples: Mapping[str, Attribution],
) -> None:
    sample = samples["tidal-barrage-complementary"]
    best = [row.index(max(row)) for row in sample.judgement.supports]
    assert best == [0, 1, 2]
    assert sample.source_credits[3].credit_units == 0


def test_overlapping_sources_share_a_key_point(samples: Mapping[str, Attribution]) -> None:
    rows = samples["sourdough-overlapping"].judgement.supports
    assert all(sum(cell >= GROUNDING_THRESHOLD for cell in row) >= 2 for row in rows)
    assert all(share > 0.1 for share in shares(samples["sourdough-overlapping"]))


def test_a_sole_supporter_earns_everything_it_supports(samples: Mapping[str, Attribution]) -> None:
    sample = samples["observatory-sole-supporter"]
    assert [credit.credit_units for credit in sample.source_credits] == [sample.utility_units, 0, 0]


def test_two_copies_of_one_owner_earn_no_more_than_one_when_owners_count(samples: Mapping[str, Attribution]) -> None:
    plain = samples["harbour-tram-copies"]
    copies = [source.text for source in plain.answer.sources if source.owner_id == "northline-wire"]
    assert len(copies) == 2
    assert copies[0] == copies[1]
    assert shares(plain)[:2] == [pytest.approx(1 / 3), pytest.approx(1 / 3)]
    grouped = attributions(Grouping.OWNER)["harbour-tram-copies"]
    assert sum(shares(grouped)[:2]) == pytest.approx(1 / 2)


def test_a_claim_no_source_makes_is_ungrounded(samples: Mapping[str, Attribution]) -> None:
    sample = samples["green-roof-ungrounded-claim"]
    (ungrounded,) = ungrounded_key_points(sample.judgement)
    assert "insurers" in ungrounded.text
    assert sample.status is Status.ATTRIBUTED


@pytest.mark.parametrize(
    ("answer_id", "status"),
    [
        ("glass-frogs-no-support", Status.UNGROUNDED),
        ("timetable-empty-answer", Status.NO_KEY_POINTS),
        ("arithmetic-no-sources", Status.NO_SOURCES),
    ],
)
def test_answers_nobody_is_paid_for_say_why(samples: Mapping[str, Attribution], answer_id: str, status: Status) -> None:
    sample = samples[answer_id]
    assert (sample.status, sample.utility_units) == (status, 0)


@pytest.mark.parametrize("answer_id", ["radschnellweg-german", "lighthouse-japanese", "library-arabic"])
def test_answers_in_other_languages_find_their_sources(samples: Mapping[str, Attribution], answer_id: str) -> None:
    sample = samples[answer_id]
    assert not ungrounded_key_points(sample.judgement)
    assert len({row.index(max(row)) for row in sample.judgement.supports}) == len(sample.judgement.supports) > 1


def test_an_irrelevant_source_in_another_language_earns_next_to_nothing(samples: Mapping[str, Attribution]) -> None:
    assert shares(samples["radschnellweg-german"])[2] < 0.05
    assert shares(samples["library-arabic"])[2] == 0


def test_emoji_and_markdown_are_no_hindrance(samples: Mapping[str, Attribution]) -> None:
    sample = samples["marrow-island-emoji"]
    quotes = [quote.text for quote in sample.judgement.quotes.values()]
    assert any("🦭" in key_point.text for key_point in sample.judgement.key_points)
    assert not any("**" in key_point.text or "[1]" in key_point.text for key_point in sample.judgement.key_points)
    assert len(quotes) > 5
    assert min(shares(sample)) > 0.2


def test_a_paraphrase_earns_nothing_from_this_judge(samples: Mapping[str, Attribution]) -> None:
    assert shares(samples["bridge-paraphrase"])[1] == 0


def test_reward_budgets_come_in_two_currencies(samples: Mapping[str, Attribution]) -> None:
    rewards = {
        answer_id: (sample.answer.reward.amount, sample.answer.reward.currency)
        for answer_id, sample in samples.items()
        if sample.answer.reward is not None
    }
    assert rewards == {
        "harbour-tram-copies": (Decimal("1.50"), "EUR"),
        "radschnellweg-german": (Decimal("0.80"), "EUR"),
        "heat-pump-reward": (Decimal("2.400000"), "USD"),
    }


def test_every_answer_with_a_reward_pays_someone(samples: Mapping[str, Attribution]) -> None:
    rewarded = [sample for sample in samples.values() if sample.answer.reward is not None]
    assert all(sum(credit.share_units for credit in sample.source_credits) == UNIT_SCALE for sample in rewarded)
