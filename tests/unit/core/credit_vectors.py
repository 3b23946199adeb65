"""Golden vectors for anyone who computes credit in another language: brute force writes them, production reads them.

`python -m tests.unit.core.credit_vectors` writes the file again; a test holds it to what brute force gives.
"""

import json
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.unit.core import brute_force

VECTORS_PATH = Path(__file__).parent / "credit_vectors.json"
ABOUT = (
    "Supports in units of 1/10000, one row per key point. phi: each source's exact Shapley value (Owen value when "
    "grouped by owner), a fraction. utility_units = floor(sum(phi) * 10^12); residual_units = 10^12 - utility_units; "
    "credit_units apportion utility_units, share_units 10^12, in proportion to phi by largest remainder, ties by place."
)
RUBRIC = (0, 3_000, 7_000, 10_000)
OMEGA = ["1", "1/2", "1/4"]
POLICIES: dict[str, tuple[dict[str, Any], brute_force.Utility]] = {
    "max": ({}, brute_force.max_of),
    "top_k": ({"k": 2}, brute_force.top_k_of(2)),
    "rank_weighted": ({"omega": OMEGA}, brute_force.rank_weighted_of([Fraction(term) for term in OMEGA])),
}
Matrix = Sequence[Sequence[int]]


def matrices() -> Iterator[tuple[str, Matrix, list[int], list[str | None]]]:
    """Name, supports, weights and owners of each answer."""
    yield "two sources", [[2_000, 10_000]], [1], ["a", "b"]
    yield "rubric levels", [[3_000, 7_000, 10_000]], [1], ["a", "a", "b"]
    yield "ties and a null source", [[0, 3_000, 3_000, 7_000, 7_000, 10_000]], [1], ["a", "b", "b", "a", None, None]
    yield "all equal: ties by position", [[10_000] * 7], [1], ["a", "a", "a", "b", "b", None, None]
    yield "a lone source", [[3_000], [0], [10_000]], [1, 1, 1], ["a"]
    yield "no support anywhere", [[0, 0, 0], [0, 0, 0]], [2, 1], ["a", "a", None]
    yield "one unit of support", [[1, 0, 1], [0, 0, 0]], [1, 9_999], ["a", "b", "a"]
    yield "weights", [[10_000, 0, 7_000], [3_000, 10_000, 3_000], [0, 0, 7_000]], [3, 1, 2], ["a", "b", None]
    yield "copies of one owner", [[7_000, 7_000, 7_000, 10_000], [3_000, 3_000, 3_000, 0]], [1, 1], ["a", "a", "a", "b"]
    yield (
        "rubric 8 × 8",
        spread(8, 8, lambda mixed: RUBRIC[mixed % 4]),
        [1, 3, 2, 1, 1, 2, 3, 1],
        list("aabbbc") + [None] * 2,
    )
    yield (
        "distinct 5 × 8",
        spread(5, 8, lambda mixed: mixed % 10_001),
        [1, 2, 3, 2, 1],
        ["a", None, "b", "a", "c", "b", "a", None],
    )


def spread(rows: int, columns: int, cell: Any) -> Matrix:
    """A matrix that any language can write down again: no random generator is needed."""
    return [[cell((row * 31 + column * 17 + 7) ** 3 // 11) for column in range(columns)] for row in range(rows)]


def vectors() -> list[dict[str, Any]]:
    found = []
    for name, supports, weights, owners in matrices():
        for policy, (parameters, utility_of) in POLICIES.items():
            for grouping in ("source", "owner"):
                case = brute_force.Case(
                    tuple(map(tuple, supports)),
                    tuple(weights),
                    utility_of,
                    tuple(owners) if grouping == "owner" else None,
                )
                phi = brute_force.credit(case)
                utility_units = int(sum(phi) * brute_force.UNITS)
                found.append(
                    {
                        "name": f"{name}, {policy} by {grouping}",
                        "supports": supports,
                        "weights": weights,
                        "owners": owners,
                        "policy": policy,
                        "policy_parameters": parameters,
                        "grouping": grouping,
                        "phi": [str(value) for value in phi],
                        "utility_units": utility_units,
                        "residual_units": brute_force.UNITS - utility_units,
                        "credit_units": brute_force.largest_remainder(utility_units, phi),
                        "share_units": brute_force.largest_remainder(brute_force.UNITS, phi),
                    }
                )
    return found


def document() -> str:
    lines = ",\n".join(json.dumps(vector, ensure_ascii=False) for vector in vectors())
    return f'{{"about": {json.dumps(ABOUT)},\n"vectors": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    VECTORS_PATH.write_text(document(), encoding="utf-8")
