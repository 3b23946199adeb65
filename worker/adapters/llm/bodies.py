"""What a response body says, read with suspicion: the same reading for a live response and a journaled one."""

import json
from collections.abc import Callable, Mapping
from typing import cast

from worker.core.llm import Completion, CompletionRequest, CompletionUsage, Finish, UsageSource


class UnreadableBodyError(ValueError):
    """The body is not what this API sends; the message says how, without quoting it."""


JsonObject = Mapping[str, object]


def json_object(raw: str) -> JsonObject:
    """The body as a JSON object.

    Raises:
        UnreadableBodyError: it is not one (HTML, cut short, NaN, nested without end).
    """
    try:
        body = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UnreadableBodyError(f"the body is not JSON ({type(error).__name__})") from None
    if not isinstance(body, dict):
        raise UnreadableBodyError("the body is JSON but no object")
    return cast("JsonObject", body)


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def member(body: JsonObject, name: str) -> JsonObject:
    """The object under this name; empty when it is absent or something else."""
    value = body.get(name)
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def objects(body: JsonObject, name: str) -> list[JsonObject]:
    """The objects in the array under this name; anything else in it is passed over."""
    values = body.get(name)
    return (
        [cast("JsonObject", value) for value in values if isinstance(value, dict)] if isinstance(values, list) else []
    )


def token_count(usage: JsonObject, name: str) -> int:
    """A count of tokens; 0 when absent or senseless."""
    value = usage.get(name)
    return value if type(value) is int and value >= 0 else 0


def estimated_completion(
    finish: Finish, text: str | None, raw: str, request: CompletionRequest, count_tokens: Callable[[str], int]
) -> Completion:
    """A response that tells no usage is billed all the same: our count stands in, and says so."""
    asked = (request.instructions, request.context, request.question, json.dumps(request.schema))
    usage = CompletionUsage(
        input_tokens=sum(count_tokens(part) for part in asked),
        output_tokens=count_tokens(text if text is not None else raw),
        source=UsageSource.ESTIMATED,
    )
    return Completion(finish, text, usage, raw)


def request_id_of(body: JsonObject) -> str | None:
    """The provider's own id of the completion."""
    value = body.get("id")
    return value if isinstance(value, str) else None
