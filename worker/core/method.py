"""The identity of a way to compute credit: everything that can change a number, and its hash."""

import hashlib
import json
from collections.abc import Mapping

from worker.core.model import SUPPORT_SCALE, UNIT_SCALE, JudgeProfile, Method
from worker.core.policy import Grouping, Policy

FORMULAS_VERSION = 1
"""Raised when the same matrix, policy and grouping would give other units than before."""


def build_method(*, policy: Policy, grouping: Grouping, judge: JudgeProfile, grounding_threshold: int) -> Method:
    """The method of these choices; `grounding_threshold` in units of 10⁻⁴.

    The code version is recorded beside a method, never in it: a deploy that changes no number changes no method.
    """
    return method_of(
        {
            "utility": "max_sum",
            "formulas_version": FORMULAS_VERSION,
            "support_scale": SUPPORT_SCALE,
            "unit_scale": UNIT_SCALE,
            "policy": policy.name.value,
            "policy_parameters": dict(policy.parameters),
            "grouping": grouping.value,
            "grounding_threshold": grounding_threshold,
            "judge": {
                "name": judge.name,
                "version": judge.version,
                "models": list(judge.models),
                "prompt_hashes": list(judge.prompt_hashes),
                "scoring_mode": judge.scoring_mode,
                "weighting": judge.weighting,
            },
        }
    )


def method_of(document: Mapping[str, object]) -> Method:
    """The method a stored document describes: the same document gives the same hash, whatever its order of keys."""
    return Method(method_hash=hashlib.sha256(canonical_json(document)).digest(), document=document)


def canonical_json(document: Mapping[str, object]) -> bytes:
    """Sorted keys, no spaces, UTF-8: the bytes a hash is taken of.

    Raises:
        ValueError: NaN or an infinity.
        TypeError: a value JSON has no word for.
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def credit_rules_of(method: Method) -> tuple[Policy, Grouping]:
    """The policy and grouping a method's document names, as `verify` needs them.

    Raises:
        ValueError: the document names none, or formulas of another version than this code computes.
    """
    document = method.document
    if document.get("formulas_version") != FORMULAS_VERSION:
        raise ValueError(
            f"formulas_version is {document.get('formulas_version')!r}, this code computes {FORMULAS_VERSION}"
        )
    name, parameters, grouping = document.get("policy"), document.get("policy_parameters"), document.get("grouping")
    if not (isinstance(name, str) and isinstance(parameters, Mapping) and isinstance(grouping, str)):
        raise ValueError(  # noqa: TRY004 - the document's content is wrong, not a caller's type
            "a method's document needs policy, policy_parameters and grouping"
        )
    return Policy.from_parameters(name, parameters), Grouping.named(grouping)
