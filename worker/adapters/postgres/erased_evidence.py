"""An evidence document without its texts, or without one owner's: hashes instead, every number as it was."""

from collections.abc import Mapping
from typing import Any

from worker.adapters.postgres.evidence import text_hash
from worker.settings import TextStorage

Document = Mapping[str, Any]
"""As `encode_evidence` writes it; `erased_owners` names those whose quotes are hashes already."""

ERASED_OWNERS = "erased_owners"


def without_texts(document: Document) -> Document:
    """As if it had been stored with `store_text=hash`."""
    if document["texts"] == TextStorage.HASH:
        return document
    return {
        **document,
        "texts": TextStorage.HASH.value,
        "query": None,
        "answer": None,
        "key_points": [{**point, "text": _hashed(point["text"])} for point in document["key_points"]],
        "quotes": _quotes_hashed(document, of=set(range(len(document["sources"])))),
    }


def without_texts_of(document: Document, owner_id: str) -> Document:
    """The quotes from this owner's sources hashed; query, answer and key points are not the owner's."""
    if document["texts"] == TextStorage.HASH or owner_id in document.get(ERASED_OWNERS, ()):
        return document
    theirs = {index for index, source in enumerate(document["sources"]) if source["owner_id"] == owner_id}
    return {
        **document,
        "quotes": _quotes_hashed(document, of=theirs),
        ERASED_OWNERS: sorted({*document.get(ERASED_OWNERS, ()), owner_id}),
    }


def _quotes_hashed(document: Document, *, of: set[int]) -> list[list[object]]:
    before = document.get(ERASED_OWNERS, ())
    due = {index for index in of if document["sources"][index]["owner_id"] not in before}
    return [
        [row, column, origin, _hashed(text) if column in due else text]
        for row, column, origin, text in document["quotes"]
    ]


def _hashed(text: str) -> str:
    return text_hash(text).hex()
