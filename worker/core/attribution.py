"""From an answer and its judgement to its attribution: the status, and what each source earned."""

from collections.abc import Sequence

from worker.core.credit import Credit, compute_credit
from worker.core.model import Answer, Attribution, Judgement, KeyPoint, Method, SourceCredit, Status
from worker.core.policy import Grouping, Policy


def attribute(
    answer: Answer, judgement: Judgement, method: Method, *, policy: Policy, grouping: Grouping
) -> Attribution:
    """The attribution of one answer: pure arithmetic, the same on every machine.

    Raises:
        ValueError: the judgement is not one of this answer, a support has no evidence, or the method names another
            policy or grouping than the ones to compute with.
    """
    _check_method(method, policy, grouping)
    _check_evidence(judgement, len(answer.sources))
    weights = [key_point.weight for key_point in judgement.key_points]
    owners = [source.owner_id for source in answer.sources]
    plain = compute_credit(judgement.supports, weights, owners=owners, policy=policy)
    grouped = plain
    if grouping is Grouping.OWNER:
        grouped = compute_credit(judgement.supports, weights, owners=owners, policy=policy, grouping=grouping)
    return Attribution(
        answer=answer,
        status=_status_of(answer, judgement),
        method=method,
        judgement=judgement,
        utility_units=grouped.utility_units,
        residual_units=grouped.residual_units,
        source_credits=_source_credits(answer, grouped, plain),
    )


def coverages(judgement: Judgement) -> tuple[int, ...]:
    """The best support of each key point, in units of 10⁻⁴."""
    return tuple(max(row, default=0) for row in judgement.supports)


def ungrounded_key_points(judgement: Judgement) -> tuple[KeyPoint, ...]:
    """The key points whose coverage is below the grounding threshold: made up, or the model's own knowledge."""
    return tuple(
        key_point
        for key_point, coverage in zip(judgement.key_points, coverages(judgement), strict=True)
        if coverage < judgement.grounding_threshold
    )


def _status_of(answer: Answer, judgement: Judgement) -> Status:
    if not answer.sources:
        return Status.NO_SOURCES
    if not judgement.key_points:
        return Status.NO_KEY_POINTS
    # The exact utility decides, not its units: under huge weights it can round down to 0 units.
    return Status.ATTRIBUTED if any(coverages(judgement)) else Status.UNGROUNDED


def _source_credits(answer: Answer, grouped: Credit, plain: Credit) -> tuple[SourceCredit, ...]:
    columns: Sequence[Sequence[int]] = (
        grouped.credit_units,
        grouped.share_units,
        plain.credit_units,
        plain.share_units,
    )
    return tuple(
        SourceCredit(source.source_id, source.owner_id, credit, share, plain_credit, plain_share)
        for source, credit, share, plain_credit, plain_share in zip(answer.sources, *columns, strict=True)
    )


def _check_method(method: Method, policy: Policy, grouping: Grouping) -> None:
    document = method.document
    named = (document.get("policy"), document.get("policy_parameters"), document.get("grouping"))
    if named != (policy.name.value, policy.parameters, grouping.value):
        raise ValueError(
            f"the method says {named}, the computation is {policy} by {grouping}: numbers would be mislabelled"
        )


def _check_evidence(judgement: Judgement, source_count: int) -> None:
    """No support without evidence, and no evidence for a cell there is not."""
    key_point_count = len(judgement.key_points)
    if len(judgement.supports) != key_point_count:
        raise ValueError(
            f"the judgement has {len(judgement.supports)} rows of supports for {key_point_count} key points"
        )
    for row_index, row in enumerate(judgement.supports):
        if len(row) != source_count:
            raise ValueError(f"row {row_index} has {len(row)} supports for {source_count} sources")
        for source_index, support in enumerate(row):
            quote = judgement.quotes.get((row_index, source_index))
            if support and (quote is None or not quote.text):
                raise ValueError(
                    f"the support at ({row_index}, {source_index}) has no quote: no support without evidence"
                )
    for row_index, source_index in (*judgement.quotes, *judgement.unevidenced):
        if not (0 <= row_index < key_point_count and 0 <= source_index < source_count):
            raise ValueError(f"there is evidence for ({row_index}, {source_index}), which is no cell of this judgement")
    for row_index, source_index in judgement.unevidenced:
        if judgement.supports[row_index][source_index]:
            raise ValueError(f"({row_index}, {source_index}) counts as unevidenced but has a support")
