"""Structured output for models that have none: the schema said in words."""

import json

from worker.core.llm import CompletionRequest


def with_schema_in_words(request: CompletionRequest) -> str:
    """The instructions, then the schema of the reply."""
    schema = json.dumps(request.schema, separators=(",", ":"), sort_keys=True)
    return f"{request.instructions}\n\nReply with one JSON object of this JSON Schema and nothing else:\n{schema}"
