"""The configured method: how records are read, and how a judgement becomes credit."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version

from worker.codec import decode_answer, read_answer_key
from worker.core.attribution import attribute
from worker.core.method import build_method
from worker.core.model import Answer, AnswerIdentity, Attribution, Judgement, JudgeProfile, Method
from worker.core.policy import Grouping, Policy
from worker.core.records import Record
from worker.core.retry import RetryPolicy
from worker.errors import PermanentError
from worker.settings import ConfigurationError, JudgeName, Settings
from worker.telemetry import Telemetry


@cache  # the look-up reads the installed package's files
def code_version() -> str:
    """Recorded beside everything stored; never part of a method."""
    return version("attribution-worker")


def build_methods(settings: Settings) -> Callable[[JudgeProfile], Method]:
    """The method of each judge under the configured policy and grouping.

    Raises:
        ConfigurationError: the policy's parameters make no policy.
    """
    policy, grouping = _credit_rules(settings)

    @cache  # one or two judges in a process, one method each
    def method_of(profile: JudgeProfile) -> Method:
        return build_method(
            policy=policy, grouping=grouping, judge=profile, grounding_threshold=profile.grounding_threshold
        )

    return method_of


def build_credit(settings: Settings, profile: JudgeProfile) -> Callable[[Answer, Judgement], Attribution]:
    """The arithmetic of the configured method; a judgement that names no other judge is by the one of `profile`.

    Raises:
        ConfigurationError: the policy's parameters make no policy.
    """
    policy, grouping = _credit_rules(settings)
    method_of = build_methods(settings)

    def credit(answer: Answer, judgement: Judgement) -> Attribution:
        method = method_of(judgement.profile or profile)
        return attribute(answer, judgement, method, policy=policy, grouping=grouping)

    return credit


def build_decoder(settings: Settings, telemetry: Telemetry) -> Callable[[Record], Answer]:
    """Records to answers under the intake limits; what was ignored or scrubbed is counted."""

    def decode(record: Record) -> Answer:
        decoded = decode_answer(record, limits=settings.intake, now=datetime.now(UTC))
        telemetry.event_decoded(unknown_field_count=decoded.unknown_field_count, scrubbed_count=decoded.scrubbed_count)
        return decoded.answer

    return decode


def build_identify(settings: Settings) -> Callable[[Record], AnswerIdentity]:
    """What a record that failed is about; its content only where the event is valid, limits and all."""

    def identify(record: Record) -> AnswerIdentity:
        try:
            answer = decode_answer(record, limits=settings.intake, now=datetime.now(UTC)).answer
        except PermanentError:
            return AnswerIdentity(read_answer_key(record))
        return AnswerIdentity(answer.key, answer.content_hash)

    return identify


def build_retry_policy(settings: Settings) -> RetryPolicy:
    """How often and after what pauses a record runs again."""
    settle = settings.settle
    return RetryPolicy(
        attempts_max=settle.attempts_max,
        backoff_base_s=settle.backoff_base_s,
        backoff_max_s=settle.backoff_max_s,
        outage_backoff_max_s=settle.outage_backoff_max_s,
    )


def override_method(
    settings: Settings,
    *,
    judge: JudgeName | None = None,
    model: str | None = None,
    policy: str | None = None,
    k: int | None = None,
    omega: Sequence[str] | None = None,
    grouping: str | None = None,
) -> Settings:
    """Settings with these parts of the method replaced, validated anew.

    Raises:
        ConfigurationError: a value that its setting refuses.
    """
    credit = {"policy": policy, "k": k, "omega": omega, "grouping": grouping}
    return settings.overridden({"judge": {"name": judge, "model": model}, "credit": credit})


def _credit_rules(settings: Settings) -> tuple[Policy, Grouping]:
    try:
        policy = Policy.of(settings.credit.policy, k=settings.credit.k, omega=settings.credit.omega)
    except ValueError as error:
        raise ConfigurationError(f"credit: {error}") from None
    return policy, Grouping.named(settings.credit.grouping)
