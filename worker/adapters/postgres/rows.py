"""Attributions as table rows: which columns are written, and the values of each."""

from collections.abc import Iterator, Mapping, Sequence

from worker.adapters.postgres.bulk import arrays_of
from worker.adapters.postgres.evidence import encode_evidence, evidence_of, text_hash
from worker.adapters.postgres.headers import encode_headers
from worker.adapters.postgres.tables import answers, attributions, methods, outbox, source_attributions
from worker.adapters.postgres.text import jsonb
from worker.core.model import Attribution, Method
from worker.core.records import OutboundMessage
from worker.settings import TextStorage

Arrays = Mapping[str, Sequence[object]]
Rows = Sequence[tuple[object, ...]]

ANSWER_COLUMNS = [answers.c[name] for name in ("tenant", "answer_id", "topic", "content_hash", "revision")]
METHOD_COLUMNS = [methods.c[name] for name in ("method_hash", "document")]
OUTBOX_COLUMNS = [outbox.c[name] for name in ("topic", "key", "value", "headers")]
# settled_at is left to the database: one time for all rows of a transaction, and never a worker's clock.
ATTRIBUTION_COLUMNS = [item for item in attributions.c if item.name not in {"settled_at", "supersedes_revision"}]
SOURCE_COLUMNS = [item for item in source_attributions.c if item.name != "settled_at"]


def answer_arrays(settled: Sequence[Attribution], topic: str) -> Arrays:
    return arrays_of(
        ANSWER_COLUMNS,
        [
            (item.answer.key.tenant, item.answer.key.answer_id, topic, item.answer.content_hash, item.revision)
            for item in settled
        ],
    )


def attribution_rows(settled: Sequence[Attribution], code_version: str, texts: TextStorage) -> Rows:
    return [_attribution_row(item, code_version, texts) for item in settled]


def source_rows(settled: Sequence[Attribution], texts: TextStorage) -> Rows:
    titles = texts is TextStorage.FULL
    return [row for item in settled for row in _source_rows(item, titles=titles)]


def method_arrays(new: Sequence[Method]) -> Arrays:
    return arrays_of(METHOD_COLUMNS, [(method.method_hash, jsonb(method.document)) for method in new])


def outbox_rows(messages: Sequence[OutboundMessage]) -> Rows:
    return [(message.topic, message.key, message.value, encode_headers(message.headers)) for message in messages]


def _attribution_row(item: Attribution, code_version: str, texts: TextStorage) -> tuple[object, ...]:
    answer, judgement, usage = item.answer, item.judgement, item.judgement.usage
    threshold = judgement.grounding_threshold
    search, reward, origin = answer.search_usage, answer.reward, judgement.reused_from
    return (
        answer.key.tenant,
        answer.key.answer_id,
        item.revision,
        item.status.value,
        item.method.method_hash,
        code_version,
        answer.occurred_at,
        item.utility_units,
        item.residual_units,
        len(answer.sources),
        len(judgement.key_points),
        sum(1 for row in judgement.supports if max(row, default=0) < threshold),
        usage.calls,
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        usage.cost_usd,
        search and search.model,
        search and search.tokens,
        reward and reward.amount,
        reward and reward.currency,
        jsonb(answer.labels),
        text_hash(answer.query),
        text_hash(answer.text),
        encode_evidence(evidence_of(answer, judgement, texts)),
        origin and origin.answer_id,
        origin and origin.revision,
    )


def _source_rows(item: Attribution, *, titles: bool) -> Iterator[tuple[object, ...]]:
    tenant, answer_id = item.answer.key.tenant, item.answer.key.answer_id
    pairs = zip(item.answer.sources, item.source_credits, strict=True)
    for position, (source, credit) in enumerate(pairs):
        yield (
            tenant,
            answer_id,
            item.revision,
            position,
            source.source_id,
            source.owner_id,
            source.url,
            source.title if titles else None,
            source.license_ref,
            credit.credit_units,
            credit.share_units,
            credit.plain_credit_units,
            credit.plain_share_units,
        )
