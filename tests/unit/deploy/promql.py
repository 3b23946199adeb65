"""Which metrics and labels a PromQL expression names."""

from dataclasses import dataclass
from typing import Any

import promql_parser

RATE_INTERVAL = "$__rate_interval"
"""Grafana puts a duration in its place; a parser wants one too."""


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric as selected; `labels_asked` are those that aggregations and matchings around it name."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    """Label, operator, value."""
    labels_asked: frozenset[str]
    is_aggregated: bool


def selectors(expression: str) -> list[Selector]:
    """Every selector of the expression.

    Raises:
        ValueError: it is no PromQL.
    """
    return _walk(promql_parser.parse(expression.replace(RATE_INTERVAL, "5m")), frozenset(), is_aggregated=False)


def _walk(node: Any, asked: frozenset[str], *, is_aggregated: bool) -> list[Selector]:
    if isinstance(node, promql_parser.VectorSelector):
        matchers = tuple((matcher.name, _operator(matcher.op), matcher.value) for matcher in node.matchers.matchers)
        return [Selector(node.name or "", matchers, asked, is_aggregated)]
    parts, asked_here = _parts(node)
    within = is_aggregated or isinstance(node, promql_parser.AggregateExpr)
    return [found for part in parts for found in _walk(part, asked | asked_here, is_aggregated=within)]


def _parts(node: Any) -> tuple[list[Any], frozenset[str]]:
    """What the expression is made of, and the labels that it asks of that."""
    match node:
        case promql_parser.MatrixSelector():
            return [node.vector_selector], frozenset()
        case promql_parser.AggregateExpr():
            return [node.expr], frozenset() if node.modifier is None else _labels_by(node.modifier)
        case promql_parser.BinaryExpr():
            return [node.lhs, node.rhs], _labels_on(node.modifier)
        case promql_parser.Call():
            return list(node.args), frozenset()
        case promql_parser.ParenExpr() | promql_parser.UnaryExpr() | promql_parser.SubqueryExpr():
            return [node.expr], frozenset()
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return [], frozenset()
        case _:
            raise AssertionError(f"a part of PromQL that this walk does not know: {type(node)}")


def _labels_by(modifier: promql_parser.AggModifier) -> frozenset[str]:
    assert modifier.type == promql_parser.AggModifierType.By, "`without` depends on labels that nobody listed: use `by`"
    return frozenset(modifier.labels)


def _labels_on(modifier: promql_parser.BinModifier | None) -> frozenset[str]:
    if modifier is None or modifier.matching is None:
        return frozenset()
    return frozenset(modifier.matching.labels)


def _operator(op: promql_parser.MatchOp) -> str:
    return {"MatchOp.Equal": "=", "MatchOp.NotEqual": "!=", "MatchOp.Re": "=~", "MatchOp.NotRe": "!~"}[str(op)]
