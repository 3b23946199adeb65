"""How a key point's coverage is divided among the sources that support it: credit policies and grouping."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from itertools import accumulate, chain, islice, pairwise, repeat
from math import lcm
from typing import Any, Self, assert_never

OMEGA_TERMS_MAX = 64
"""How many ranks `rank_weighted` may pay; with the digits below it bounds the size of every integer."""

_OMEGA_TERM = re.compile(r"[0-9]{1,9}(/[0-9]{1,9}|\.[0-9]{1,9})?", re.ASCII)

OmegaTerm = str | int | Fraction | Decimal


class PolicyName(StrEnum):
    """The three utilities of one key point."""

    MAX = "max"
    TOP_K = "top_k"
    RANK_WEIGHTED = "rank_weighted"


class Grouping(StrEnum):
    """Who is counted: every source (Shapley value), or every owner (Owen value, unions = owners)."""

    SOURCE = "source"
    OWNER = "owner"

    @classmethod
    def named(cls, name: str) -> Self:
        """Raises ValueError, listing the groupings, on another name."""
        try:
            return cls(name)
        except ValueError:
            raise ValueError(f"the grouping {name!r} is unknown: it must be one of {', '.join(cls)}") from None


@dataclass(frozen=True, slots=True)
class Policy:
    """The worth g(r) of a layer of support that r sources reach; an invalid policy cannot be made.

    | name            | g(r)                | parameter                                  |
    |-----------------|---------------------|--------------------------------------------|
    | `max`           | 1                   |                                            |
    | `top_k`         | min(k, r)           | `k` ≥ 1                                    |
    | `rank_weighted` | ω_1 + … + ω_r       | `omega`: ω_1 = 1, never rising, ω_i in 0..1 |

    `omega` is kept without trailing zeros, so that equal policies are equal values.
    """

    name: PolicyName = PolicyName.MAX
    k: int | None = None
    omega: tuple[Fraction, ...] | None = None

    def __post_init__(self) -> None:
        if (self.k is not None) != (self.name is PolicyName.TOP_K):
            raise ValueError("k belongs to the policy top_k, which needs it, and to no other")
        if (self.omega is not None) != (self.name is PolicyName.RANK_WEIGHTED):
            raise ValueError("omega belongs to the policy rank_weighted, which needs it, and to no other")
        if self.k is not None:
            _check_k(self.k)
        if self.omega is not None:
            object.__setattr__(self, "omega", _checked_omega(self.omega))

    @classmethod
    def max(cls) -> Self:
        return cls()

    @classmethod
    def top_k(cls, k: int) -> Self:
        return cls(PolicyName.TOP_K, k=k)

    @classmethod
    def rank_weighted(cls, omega: Iterable[OmegaTerm]) -> Self:
        return cls(PolicyName.RANK_WEIGHTED, omega=tuple(_omega_term(term) for term in omega))

    @classmethod
    def of(cls, name: str, *, k: int = 2, omega: Iterable[OmegaTerm] = ("1", "1/2", "1/4")) -> Self:
        """The policy of that name; the parameter of another policy is not looked at.

        Raises:
            ValueError: an unknown name, or a bad parameter of the named policy.
        """
        match _policy_name(name):
            case PolicyName.MAX:
                return cls.max()
            case PolicyName.TOP_K:
                return cls.top_k(k)
            case PolicyName.RANK_WEIGHTED:
                return cls.rank_weighted(omega)
            case unreachable:
                assert_never(unreachable)

    @classmethod
    def from_parameters(cls, name: str, parameters: Mapping[str, object]) -> Self:
        """The inverse of `name` and `parameters`; a parameter left out has its default.

        Raises:
            ValueError: an unknown name, a parameter the named policy has not, or a bad value of one.
        """
        known = {PolicyName.MAX: (), PolicyName.TOP_K: ("k",), PolicyName.RANK_WEIGHTED: ("omega",)}[_policy_name(name)]
        for parameter in parameters:
            if parameter not in known:
                takes = f"its parameter is {known[0]}" if known else "it has no parameters"
                raise ValueError(f"the policy {name} does not know {parameter!r}: {takes}")
        chosen: dict[str, Any] = dict(parameters)
        if not isinstance(chosen.get("omega", []), list | tuple):
            raise ValueError(  # noqa: TRY004 - a document's content is wrong, not a caller's type
                f'omega is {chosen["omega"]!r}: write a list like ["1", "1/2"]'
            )
        return cls.of(name, **chosen)

    @property
    def parameters(self) -> Mapping[str, object]:
        """As JSON: {}, {"k": 2} or {"omega": ["1", "1/2"]}."""
        if self.k is not None:
            return {"k": self.k}
        if self.omega is not None:
            return {"omega": [str(term) for term in self.omega]}
        return {}

    def layer_worths(self, count: int) -> list[int]:
        """g(1)..g(count) times one positive integer; only their proportions carry meaning."""
        match self.name:
            case PolicyName.MAX:
                return [1] * count
            case PolicyName.TOP_K:
                k = self.k or 0
                return [min(k, reaching) for reaching in range(1, count + 1)]
            case PolicyName.RANK_WEIGHTED:
                omega = self.omega or ()
                scale = lcm(*(term.denominator for term in omega))
                terms = (int(term * scale) for term in omega)
                return list(accumulate(islice(chain(terms, repeat(0)), count)))
            case unreachable:
                assert_never(unreachable)


MAX = Policy.max()
"""The paper's utility, and the default: only the best support of a key point counts."""


def _policy_name(name: str) -> PolicyName:
    try:
        return PolicyName(name)
    except ValueError:
        raise ValueError(f"the policy {name!r} is unknown: it must be one of {', '.join(PolicyName)}") from None


def _check_k(k: int) -> None:
    if type(k) is not int or k < 1:
        raise ValueError(f"k is {k!r}: it must be an integer of at least 1")


def _checked_omega(omega: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    if not 1 <= len(omega) <= OMEGA_TERMS_MAX:
        raise ValueError(f"omega has {len(omega)} terms: it must have 1 to {OMEGA_TERMS_MAX}")
    if omega[0] != 1:
        raise ValueError(f"omega starts with {omega[0]}: the best support counts whole, so it must start with 1")
    for index, (before, term) in enumerate(pairwise(omega), start=1):
        if not 0 <= term <= before:
            raise ValueError(f"omega[{index}] is {term}: terms must be at least 0 and never rise")
    paid = len(omega)
    while omega[paid - 1] == 0:
        paid -= 1
    return omega[:paid]


def _omega_term(term: OmegaTerm) -> Fraction:
    # The pattern comes first: Fraction("1e999999999") would compute that power of ten.
    if isinstance(term, bool | float) or not _OMEGA_TERM.fullmatch(str(term)):
        raise ValueError(
            f'omega term {str(term)[:40]!r}: write it like "1", "1/2" or "0.25", at most nine digits a part'
        )
    try:
        return Fraction(str(term))
    except ZeroDivisionError:
        raise ValueError(f"omega term {term!r}: the denominator is 0") from None
