"""One attribution as one line of JSON."""

import json
from collections.abc import Mapping, Sequence

from worker.core.attribution import coverages
from worker.core.model import SUPPORT_SCALE, Attribution, Judgement, nearest_float


def attribution_line(attribution: Attribution) -> str:
    """The line; `…_units` are exact integers of 10⁻¹², the numbers beside them their nearest decimals for reading."""
    answer, judgement = attribution.answer, attribution.judgement
    source_ids = [source.source_id for source in answer.sources]
    document = {
        "tenant": answer.key.tenant,
        "answer_id": answer.key.answer_id,
        "status": attribution.status.value,
        "utility_units": attribution.utility_units,
        "utility": nearest_float(attribution.utility_units),
        "residual_units": attribution.residual_units,
        "residual": nearest_float(attribution.residual_units),
        "method": {"method_hash": attribution.method.method_hash.hex(), **attribution.method.document},
        "sources": [
            {
                "source_id": credit.source_id,
                "owner_id": credit.owner_id,
                "credit_units": credit.credit_units,
                "share_units": credit.share_units,
                "credit": nearest_float(credit.credit_units),
                "share": nearest_float(credit.share_units),
            }
            for credit in attribution.source_credits
        ],
        "key_points": [key_point_of(judgement, row, source_ids) for row in range(len(judgement.key_points))],
        "usage": usage_of(judgement),
    }
    return json.dumps(document, ensure_ascii=False)


def key_point_of(judgement: Judgement, row: int, source_ids: Sequence[str]) -> Mapping[str, object]:
    coverage = coverages(judgement)[row]
    quotes = {
        source_id: judgement.quotes[row, column].text
        for column, source_id in enumerate(source_ids)
        if (row, column) in judgement.quotes
    }
    return {
        "text": judgement.key_points[row].text,
        "weight": judgement.key_points[row].weight,
        "coverage": coverage / SUPPORT_SCALE,
        "ungrounded": coverage < judgement.grounding_threshold,
        "supports": {
            source_id: support / SUPPORT_SCALE
            for source_id, support in zip(source_ids, judgement.supports[row], strict=True)
        },
        "quotes": quotes,
    }


def usage_of(judgement: Judgement) -> Mapping[str, object]:
    usage = judgement.usage
    return {
        "calls": usage.calls,
        "input_tokens": usage.input_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost_usd": None if usage.cost_usd is None else format(usage.cost_usd, "f"),
    }
