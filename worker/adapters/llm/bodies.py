"""What a response body says, read with suspicion: the same reading for a live response and a journaled one."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from worker.core.llm import Completion, CompletionRequest, CompletionUsage, Finish, UsageSource

TOKENS_MAX = 10**9
"""No call uses as many; a larger count is senseless."""


REQUEST_ID_MAX = 200


class UnreadableBodyError(ValueError):
    """The body is not what this API sends; the message says how, without quoting it."""


JsonObject = Mapping[str, object]


def body_text(content: bytes) -> str:
    """UTF-8 whatever the headers say, and without NUL, which JSON never holds and PostgreSQL never takes."""
    return content.decode("utf-8", "replace").replace("\0", "\ufffd")


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


def token_count(usage: JsonObject, name: str) -> int | None:
    """A count of tokens; None when absent or senseless."""
    value = usage.get(name)
    return value if type(value) is int and 0 <= value <= TOKENS_MAX else None


@dataclass(frozen=True, slots=True)
class Said:
    """What a body says of the model's message; `usage` None when it tells none that makes sense."""

    finish: Finish
    text: str | None
    usage: CompletionUsage | None


NOTHING_SAID = Said(Finish.UNKNOWN, None, None)


def completion_in(
    raw: str,
    request: CompletionRequest,
    *,
    said_in: Callable[[JsonObject], Said],
    count_tokens: Callable[[str], int],
) -> Completion:
    """Any body as a completion.

    A response whose usage is missing, or says that something came of nothing, is billed all the same: our own count
    stands in then, and says so.
    """
    try:
        body = json_object(raw)
    except UnreadableBodyError:
        body, said = {}, NOTHING_SAID
    else:
        said = said_in(body)
    usage = said.usage
    if usage is None or _says_nothing_was_used(usage, said.text):
        usage = estimated_usage(said.finish, said.text, request, count_tokens)
    return Completion(said.finish, said.text, usage, raw, _request_id(body.get("id")))


def estimated_usage(
    finish: Finish, text: str | None, request: CompletionRequest, count_tokens: Callable[[str], int]
) -> CompletionUsage:
    """What was asked, and what was said; where nothing tells how much was said, as much as was allowed."""
    asked = (request.instructions, request.context, request.question, json.dumps(request.schema, separators=(",", ":")))
    if text is not None:
        output_tokens = count_tokens(text)
    else:
        output_tokens = 0 if finish is Finish.REFUSED else request.output_tokens_max
    return CompletionUsage(
        input_tokens=sum(count_tokens(part) for part in asked),
        output_tokens=output_tokens,
        source=UsageSource.ESTIMATED,
    )


def _request_id(value: object) -> str | None:
    """As support asks for it; nothing that a database or a log could not take."""
    is_id = isinstance(value, str) and value.isascii() and value.isprintable() and len(value) <= REQUEST_ID_MAX
    return str(value) if is_id else None


def _says_nothing_was_used(usage: CompletionUsage, text: str | None) -> bool:
    input_tokens = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return input_tokens == 0 or (bool(text) and usage.output_tokens + usage.reasoning_tokens == 0)
