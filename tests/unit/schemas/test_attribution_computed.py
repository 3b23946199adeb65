import json
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.attribution_computed import AttributionComputed, AttributionStatus
from schemas.values import fraction
from tests.unit.schemas.examples import DIRECTORY
from worker.core.model import UNIT_SCALE, Status


def published() -> dict[str, Any]:
    value: dict[str, Any] = json.loads((DIRECTORY / "published" / "attributed.json").read_text(encoding="utf-8"))[
        "value"
    ]
    return value


def validate(value: dict[str, Any]) -> AttributionComputed:
    return AttributionComputed.model_validate_json(json.dumps(value))


def test_the_statuses_on_the_wire_are_those_of_the_core() -> None:
    assert {status.value for status in AttributionStatus} == {status.value for status in Status}


def test_a_consumer_ignores_fields_of_a_later_minor_version() -> None:
    assert validate({**published(), "confidence": "high"}) == validate(published())


def broken_share_sum(value: dict[str, Any]) -> None:
    source = value["sources"][0]
    source["share_units"] -= 1
    source["share"] = fraction(source["share_units"])


def broken_credit_sum(value: dict[str, Any]) -> None:
    source = value["sources"][0]
    source["credit_units"] += 1
    source["credit"] = fraction(source["credit_units"])


def broken_owner_sum(value: dict[str, Any]) -> None:
    owner = value["owners"][0]
    owner["share_units"] -= 1
    owner["share"] = fraction(owner["share_units"])


def broken_residual(value: dict[str, Any]) -> None:
    value["residual_units"] += 1
    value["residual"] = fraction(value["residual_units"])


def decimal_of_another_number(value: dict[str, Any]) -> None:
    value["sources"][0]["share"] = "0.500000000001"


def utility_of_another_number(value: dict[str, Any]) -> None:
    value["utility"] = "0.000000000001"


def shares_without_support(value: dict[str, Any]) -> None:
    value["status"] = "ungrounded"


def superseding_at_first(value: dict[str, Any]) -> None:
    value["supersedes"] = 1


def superseding_nothing_later(value: dict[str, Any]) -> None:
    value["revision"] = 2


def superseding_itself(value: dict[str, Any]) -> None:
    value["revision"] = value["supersedes"] = 2


def a_float_of_money(value: dict[str, Any]) -> None:
    value["llm_usage"]["cost_usd"] = 0.1


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (broken_share_sum, "share_units of sources"),
        (broken_credit_sum, "credit_units of sources"),
        (broken_owner_sum, "share_units of owners"),
        (broken_residual, "residual_units"),
        (decimal_of_another_number, "as decimals"),
        (utility_of_another_number, "as decimals"),
        (shares_without_support, "status ungrounded"),
        (superseding_at_first, "supersedes"),
        (superseding_nothing_later, "supersedes"),
        (superseding_itself, "supersedes"),
        (a_float_of_money, "cost_usd"),
    ],
)
def test_an_attribution_that_does_not_add_up_cannot_be_published(spoil: Any, said: str) -> None:
    value = published()
    validate(value)
    spoil(value)
    with pytest.raises(ValidationError, match=said):
        validate(value)


@pytest.mark.parametrize(
    ("units", "decimal"),
    [(0, "0.000000000000"), (1, "0.000000000001"), (UNIT_SCALE - 1, "0.999999999999"), (UNIT_SCALE, "1.000000000000")],
)
def test_units_are_written_as_decimals_of_twelve_places(units: int, decimal: str) -> None:
    assert fraction(units) == decimal
