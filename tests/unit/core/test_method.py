import hashlib
import json
from dataclasses import replace
from itertools import combinations

import pytest

from worker.core.method import build_method, canonical_json, credit_rules_of, method_of
from worker.core.model import JudgeProfile, Method
from worker.core.policy import Grouping, Policy

JUDGE = JudgeProfile(name="local", version="1", models=("m",), prompt_hashes=("p",))


def method(
    *,
    policy: Policy = Policy.max(),  # noqa: B008 - frozen
    grouping: Grouping = Grouping.SOURCE,
    judge: JudgeProfile = JUDGE,
    grounding_threshold: int = 3_000,
) -> Method:
    return build_method(policy=policy, grouping=grouping, judge=judge, grounding_threshold=grounding_threshold)


def test_the_hash_is_sha256_of_sorted_spaceless_utf8_json() -> None:
    assert (
        canonical_json({"b": [1, "é"], "a": {"d": None, "c": True}}) == '{"a":{"c":true,"d":null},"b":[1,"é"]}'.encode()
    )
    built = method()
    assert built.method_hash == hashlib.sha256(canonical_json(built.document)).digest()


def test_everything_that_can_change_a_number_changes_the_hash() -> None:
    methods = [
        method(),
        method(policy=Policy.top_k(2)),
        method(policy=Policy.top_k(3)),
        method(policy=Policy.rank_weighted(("1", "1/2"))),
        method(grouping=Grouping.OWNER),
        method(grounding_threshold=4_500),
        method(judge=replace(JUDGE, name="llm")),
        method(judge=replace(JUDGE, version="2")),
        method(judge=replace(JUDGE, models=("m", "n"))),
        method(judge=replace(JUDGE, prompt_hashes=("q",))),
        method(judge=replace(JUDGE, scoring_mode="pair")),
        method(judge=replace(JUDGE, weighting="importance")),
    ]
    assert all(a.method_hash != b.method_hash for a, b in combinations(methods, 2))


def test_a_deploy_that_changes_no_number_changes_no_hash() -> None:
    assert method().method_hash.hex() == "98285d8ef62d72dd105285e9dce0811f65dd85c3038e5f0acace730c36e87985"


def test_a_stored_document_gives_its_hash_and_rules_back() -> None:
    for policy in (Policy.max(), Policy.top_k(3), Policy.rank_weighted(("1", "1/3"))):
        for grouping in Grouping:
            built = method(policy=policy, grouping=grouping)
            stored = method_of(json.loads(json.dumps(built.document, sort_keys=False)))
            assert stored.method_hash == built.method_hash
            assert credit_rules_of(stored) == (policy, grouping)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"formulas_version": 2}, "formulas_version is 2, this code computes 1"),
        ({"policy": "best"}, "'best' is unknown"),
        ({"policy": None}, "needs policy"),
        ({"policy_parameters": None}, "needs policy"),
        ({"grouping": "publisher"}, "'publisher' is unknown"),
    ],
)
def test_a_document_this_code_cannot_compute_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        credit_rules_of(method_of({**method().document, **change}))


def test_a_document_holds_no_number_that_json_cannot_say() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"a": float("nan")})
