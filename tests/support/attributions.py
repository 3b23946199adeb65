"""Attributions and messages for tests of whatever stores them."""

from collections.abc import Mapping

from tests.support import samples
from worker.core.attribution import attribute
from worker.core.method import build_method
from worker.core.model import Answer, Attribution, Judgement, JudgeProfile
from worker.core.policy import MAX, Grouping, Policy
from worker.core.records import OutboundMessage

PROFILE = JudgeProfile(name="test", version="1")


def attribution_of(
    answer: Answer | None = None,
    judgement: Judgement | None = None,
    *,
    policy: Policy = MAX,
    grouping: Grouping = Grouping.SOURCE,
    judge: JudgeProfile = PROFILE,
) -> Attribution:
    judgement = judgement or samples.judgement()
    method = build_method(
        policy=policy, grouping=grouping, judge=judge, grounding_threshold=judgement.grounding_threshold
    )
    return attribute(answer or samples.answer(), judgement, method, policy=policy, grouping=grouping)


def message_of(attribution: Attribution, headers: Mapping[str, bytes] | None = None) -> OutboundMessage:
    key = f"{attribution.answer.key.tenant}/{attribution.answer.key.answer_id}".encode()
    return OutboundMessage("attributions", key, b"value of " + key, tuple((headers or {}).items()))
