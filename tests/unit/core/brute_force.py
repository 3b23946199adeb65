"""Shapley and Owen values by their definitions, over all coalitions, in fractions; it shares no code with the worker.

A matrix has a row per key point, cells in units of 10⁻⁴, as in production; every result is an exact Fraction.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import factorial, floor
from typing import TypeVar

Item = TypeVar("Item")
Coalition = frozenset[int]
Worth = Callable[[Coalition], Fraction]
Utility = Callable[[Sequence[int]], Fraction]

SCALE = 10_000
UNITS = 10**12


def max_of(supports: Sequence[int]) -> Fraction:
    return Fraction(max(supports, default=0))


def top_k_of(k: int) -> Utility:
    return lambda supports: Fraction(sum(sorted(supports, reverse=True)[:k]))


def rank_weighted_of(omega: Sequence[Fraction]) -> Utility:
    return lambda supports: sum(
        (weight * support for weight, support in zip(omega, sorted(supports, reverse=True), strict=False)), Fraction(0)
    )


@dataclass(frozen=True)
class Case:
    """One answer to divide: `utility_of` is a key point's worth of some supports, `owners` None for plain credit."""

    supports: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...]
    utility_of: Utility
    owners: tuple[str | None, ...] | None = None

    @property
    def source_count(self) -> int:
        return len(self.supports[0])

    def unions(self) -> list[Coalition]:
        """Sources by owner; without an owner, alone."""
        named = {owner for owner in self.owners or () if owner is not None}
        shared = [frozenset(i for i, owner in enumerate(self.owners or ()) if owner == name) for name in sorted(named)]
        taken = frozenset().union(*shared)
        return shared + [frozenset({i}) for i in range(self.source_count) if i not in taken]

    def row_worth(self, row: Sequence[int]) -> Worth:
        """One key point's utility of a coalition, its game not yet scaled to its coverage."""
        if self.owners is None:
            return lambda coalition: self.utility_of([row[i] for i in coalition])
        unions = self.unions()
        return lambda coalition: self.utility_of(
            [max(row[i] for i in union & coalition) for union in unions if union & coalition]
        )

    def worth(self) -> Worth:
        """U(S) of the whole answer: each key point's game scaled so that U(N) is its weighted coverage."""
        everyone = frozenset(range(self.source_count))
        games = []
        for row, weight in zip(self.supports, self.weights, strict=True):
            row_worth = self.row_worth(row)
            whole = row_worth(everyone)
            if whole:
                share = Fraction(weight, sum(self.weights)) * Fraction(max(row), SCALE)
                games.append((row_worth, share / whole))
        return lambda coalition: sum((game(coalition) * factor for game, factor in games), Fraction(0))


def credit(case: Case) -> list[Fraction]:
    """φ by definition: the Shapley value, or with owners the Owen value with the owners as unions."""
    unions = case.unions() if case.owners is not None else [frozenset({i}) for i in range(case.source_count)]
    return owen_value(remembered(case.worth()), unions)


def owen_value(worth: Worth, unions: Sequence[Coalition]) -> list[Fraction]:
    """Owen 1977: the mean marginal over orders in which unions come one after another, each in any order inside.

    With unions of one player each it is the Shapley value.
    """
    values = [Fraction(0)] * sum(map(len, unions))
    for union in unions:
        others = [other for other in unions if other is not union]
        for before in subsets(others):
            union_chance = chance(len(before), len(unions))
            base = frozenset().union(*before)
            for player in union:
                for beside in subsets(sorted(union - {player})):
                    coalition = base | frozenset(beside)
                    marginal = worth(coalition | {player}) - worth(coalition)
                    values[player] += union_chance * chance(len(beside), len(union)) * marginal
    return values


def chance(earlier: int, players: int) -> Fraction:
    """That exactly these `earlier` of the others come before one player in a random order."""
    return Fraction(factorial(earlier) * factorial(players - earlier - 1), factorial(players))


def subsets(items: Sequence[Item]) -> Iterable[tuple[Item, ...]]:
    return (subset for size in range(len(items) + 1) for subset in combinations(items, size))


def remembered(worth: Worth) -> Worth:
    known: dict[Coalition, Fraction] = {}

    def remember(coalition: Coalition) -> Fraction:
        if coalition not in known:
            known[coalition] = worth(coalition)
        return known[coalition]

    return remember


def largest_remainder(total: int, parts: Sequence[Fraction]) -> list[int]:
    """Hamilton's method as a person would do it: round down, then hand out what is left by the largest fraction."""
    whole = sum(parts, Fraction(0))
    if not whole:
        return [0] * len(parts)
    quotas = [total * part / whole for part in parts]
    units = [floor(quota) for quota in quotas]
    by_fraction = sorted(range(len(parts)), key=lambda i: (units[i] - quotas[i], i))
    for i in by_fraction[: total - sum(units)]:
        units[i] += 1
    return units
