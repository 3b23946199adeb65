"""The README's questions in SQL give, on the demo's database, the answers printed below them."""

import re
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support import lines
from worker.demo.first_run import first_run
from worker.embedded.broker import Broker

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
