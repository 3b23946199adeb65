"""The README's questions in SQL give, on the demo's database, the answers printed below them."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support import lines
from worker.adapters.prices import ListedPrices
from worker.core.cost import cost_usd
from worker.core.llm import CompletionUsage
from worker.demo.first_run import first_run
from worker.embedded.broker import Broker

PRICES_READ_AT = datetime(2026, 11, 29, tzinfo=UTC)
README = Path(__file__).parents[3] / "README.md"


def questions() -> list[tuple[str, list[list[str]]]]:
    """Each query with the rows printed below it."""
    code = [line[4:] for line in README.read_text().splitlines() if line.startswith("    ") or not line.strip()]
    found = re.findall(r"(SELECT .*?;)\n\n(.*?)\n\n", "\n".join(code) + "\n\n", re.DOTALL)
    return [(query, [cells(line) for line in table.splitlines()[2:]]) for query, table in found]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def as_printed(value: object) -> str:
    return "" if value is None else format(value, "f") if isinstance(value, Decimal) else str(value)


@pytest.mark.postgres
async def test_every_question_has_the_printed_answer(
    embedded_broker: Broker, postgres_dsn: str, topics_prefix: str
) -> None:
    settings = lines.settings_of(embedded_broker, postgres_dsn, topics_prefix)
    await first_run(settings, lambda _: None)
    asked = questions()
    assert len(asked) == 5
    for query, printed in asked:
        rows = await lines.rows(postgres_dsn, query)
        assert [[as_printed(value).strip() for value in row.values()] for row in rows] == printed, query


def test_the_cost_of_a_thousand_answers_is_what_the_named_prices_give() -> None:
    text = README.read_text()
    tokens = re.search(r"from ([\d,]+) input and ([\d,]+) output tokens an answer", text)
    release = re.search(r"genai-prices (\S+), read on", text)
    assert tokens is not None
    assert release is not None
    input_tokens, output_tokens = (int(count.replace(",", "")) for count in tokens.groups())
    rows = re.findall(r"^\| (openai|anthropic) / (\S+) \| ([\d.]+) \|$", text, re.MULTILINE)
    assert len(rows) == 6
    for provider, model, printed in rows:
        prices = ListedPrices({}).of(provider, model, PRICES_READ_AT, input_tokens=input_tokens)
        assert prices is not None
        assert prices.version == release.group(1)
        cost = 1_000 * cost_usd(CompletionUsage(input_tokens, output_tokens), prices)
        assert f"{cost:.2f}" == printed, model
