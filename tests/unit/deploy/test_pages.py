"""The pages an operator plans by: sums are right, and tests that are named exist."""

import math
import operator
import re
from collections.abc import Callable

import pytest

from tests.unit.deploy.files import REPOSITORY

SIZING = (REPOSITORY / "docs/sizing.md").read_text()
THREATS = (REPOSITORY / "docs/threat-model.md").read_text()
README = (REPOSITORY / "README.md").read_text()

OPERATORS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading, cell by cell."""
    section = SIZING.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


INPUTS = {name: float(value) for name, value, *_ in table("Inputs")}
RESULTS = {name: (formula, float(result.replace(",", ""))) for name, formula, result, _ in table("Results")}


def computed(name: str) -> float:
    """The value of an input, or of a result from its formula and not from the page."""
    return INPUTS[name] if name in INPUTS else Formula(RESULTS[name][0]).value()


class Formula:
    """Reads `a * (b + 2) / c` and `ceil(…)`, from left to right, products first."""

    def __init__(self, text: str) -> None:
        self._tokens = re.findall(r"[a-z_][a-z0-9_]*|[0-9][0-9.e]*|[-+*/()]", text)

    def value(self) -> float:
        found = self._terms()
        assert not self._tokens, "the formula goes on"
        return found

    def _terms(self) -> float:
        return self._chain("+-", self._factors)

    def _factors(self) -> float:
        return self._chain("*/", self._operand)

    def _chain(self, signs: str, part: Callable[[], float]) -> float:
        found = part()
        while self._tokens and self._tokens[0] in signs:
            found = OPERATORS[self._tokens.pop(0)](found, part())
        return found

    def _operand(self) -> float:
        word = self._tokens.pop(0)
        if word in ("(", "ceil"):
            if word == "ceil":
                assert self._tokens.pop(0) == "("
            found = self._terms()
            assert self._tokens.pop(0) == ")"
            return math.ceil(found) if word == "ceil" else found
        return float(word) if word[0].isdigit() else computed(word)


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_of_the_sizing_is_what_its_formula_gives(name: str) -> None:
    stated, exact = RESULTS[name][1], computed(name)
    assert stated == float(f"{exact:.3g}"), f"{name}: three digits of {exact}"


def test_the_sizing_takes_its_tokens_and_price_from_the_readme() -> None:
    assert f"{INPUTS['input_tokens']:,.0f} input and {INPUTS['output_tokens']:.0f} output tokens an answer" in README
    assert f"| openai / gpt-5-mini | {INPUTS['usd_per_1000']} |" in README


def test_every_test_that_the_threat_model_names_exists() -> None:
    named = set(re.findall(r"`((?:tests/[\w/]*)?(?:test_\w+\.py)|tests/[\w/]+/)`", THREATS))
    assert len(named) > 10
    for path in named:
        there = [REPOSITORY / path] if "/" in path else list((REPOSITORY / "tests").glob(f"**/{path}"))
        assert [found for found in there if found.exists()], path


def test_the_threat_model_says_what_does_not_hold_of_every_attacker() -> None:
    attackers = [section for section in THREATS.split("\n## ")[1:] if section.startswith("A ")]
    assert len(attackers) == 4
    assert all("**Does not hold.**" in section for section in attackers)
