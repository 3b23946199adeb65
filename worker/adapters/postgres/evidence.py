"""The evidence of one attribution as a JSONB document: enough for an outsider to recompute every number of it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from worker.adapters.postgres.text import jsonb
from worker.core.model import Answer, Judgement, KeyPoint, Quote, QuoteOrigin
from worker.settings import TextStorage

EVIDENCE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is stored of an answer and its judgement.

    With `texts` = hash, key points and quotes are SHA-256 in hexadecimal, and query and answer are None.
    Indices, shapes and units are those of `Judgement`.
    """

    texts: TextStorage
    query: str | None
    answer: str | None
    source_ids: tuple[str, ...]
    owner_ids: tuple[str | None, ...]
    key_points: tuple[KeyPoint, ...]
    supports: tuple[tuple[int, ...], ...]
    quotes: Mapping[tuple[int, int], Quote]
    unevidenced: Mapping[tuple[int, int], int]
    grounding_threshold: int
    shuffle_seed: int | None


def text_hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def evidence_of(answer: Answer, judgement: Judgement, texts: TextStorage) -> Evidence:
    full = texts is TextStorage.FULL
    return Evidence(
        texts=texts,
        query=answer.query if full else None,
        answer=answer.text if full else None,
        source_ids=tuple(source.source_id for source in answer.sources),
        owner_ids=tuple(source.owner_id for source in answer.sources),
        key_points=judgement.key_points if full else tuple(_hashed_key_point(k) for k in judgement.key_points),
        supports=judgement.supports,
        quotes=judgement.quotes if full else {cell: _hashed_quote(q) for cell, q in judgement.quotes.items()},
        unevidenced=judgement.unevidenced,
        grounding_threshold=judgement.grounding_threshold,
        shuffle_seed=judgement.shuffle_seed,
    )


def encode_evidence(evidence: Evidence) -> str:
    """JSON text; a quote is [key point, source, origin, text], an unevidenced cell [key point, source, support].

    NUL and lone surrogates, which JSONB cannot hold, are replaced by U+FFFD.
    """
    return jsonb(
        {
            "evidence_version": EVIDENCE_VERSION,
            "texts": evidence.texts.value,
            "query": evidence.query,
            "answer": evidence.answer,
            "sources": [
                {"source_id": source_id, "owner_id": owner_id}
                for source_id, owner_id in zip(evidence.source_ids, evidence.owner_ids, strict=True)
            ],
            "key_points": [{"text": point.text, "weight": point.weight} for point in evidence.key_points],
            "supports": evidence.supports,
            # Arrays, not objects: there may be a quote per cell, and the names would take most of the time and space.
            "quotes": [
                [row, column, str(quote.origin), quote.text] for (row, column), quote in evidence.quotes.items()
            ],
            "unevidenced": [[row, column, support] for (row, column), support in evidence.unevidenced.items()],
            "grounding_threshold": evidence.grounding_threshold,
            "shuffle_seed": evidence.shuffle_seed,
        }
    )


def decode_evidence(document: Mapping[str, Any]) -> Evidence:
    """The inverse of `encode_evidence`, from the parsed document.

    Raises:
        ValueError: a version this code does not know, or a document that is no evidence.
    """
    if document.get("evidence_version") != EVIDENCE_VERSION:
        raise ValueError(f"evidence_version is {document.get('evidence_version')!r}, known is {EVIDENCE_VERSION}")
    try:
        return _decoded(document)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an evidence document: {error!r}") from error


def _decoded(document: Mapping[str, Any]) -> Evidence:
    return Evidence(
        texts=TextStorage(document["texts"]),
        query=document["query"],
        answer=document["answer"],
        source_ids=tuple(source["source_id"] for source in document["sources"]),
        owner_ids=tuple(source["owner_id"] for source in document["sources"]),
        key_points=tuple(KeyPoint(point["text"], point["weight"]) for point in document["key_points"]),
        supports=tuple(tuple(row) for row in document["supports"]),
        quotes={(row, column): Quote(text, QuoteOrigin(origin)) for row, column, origin, text in document["quotes"]},
        unevidenced={(row, column): support for row, column, support in document["unevidenced"]},
        grounding_threshold=document["grounding_threshold"],
        shuffle_seed=document["shuffle_seed"],
    )


def _hashed_key_point(point: KeyPoint) -> KeyPoint:
    return KeyPoint(text_hash(point.text).hex(), point.weight)


def _hashed_quote(quote: Quote) -> Quote:
    return Quote(text_hash(quote.text).hex(), quote.origin)
