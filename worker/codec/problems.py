"""What is wrong with an event, said so that its producer can mend it, without a word of its payload."""

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from schemas.answer_generated import AnswerGenerated, RewardBudget, SearchLlm, SourceDocument
from schemas.cloud_events import AnswerGeneratedEnvelope
from schemas.dead_letter import DeadLetterReason
from schemas.values import PATTERN_MEANINGS
from worker.errors import PermanentError

PROBLEMS_LISTED_MAX: Final = 5

_READ_MODELS: Final[tuple[type[BaseModel], ...]] = (
    AnswerGenerated,
    SourceDocument,
    SearchLlm,
    RewardBudget,
    AnswerGeneratedEnvelope,
)
KNOWN_FIELDS: Final = frozenset(name for model in _READ_MODELS for name in model.model_fields)


def invalid_event(path: str, problem: str) -> PermanentError:
    return PermanentError(DeadLetterReason.INVALID_EVENT, f"{path}: {problem}")


def not_json(problem: str) -> PermanentError:
    return PermanentError(DeadLetterReason.NOT_JSON, problem)


def refusal(error: ValidationError, value: bytes) -> PermanentError:
    """The dead letter that a failed validation of `value` becomes."""
    problems = error.errors(include_url=False, include_input=False)
    if problems[0]["type"] == "json_invalid":
        return not_json(_why_not_json(problems[0]["msg"], value))
    listed = [f"{_path(problem['loc'])}: {_meaning(problem)}" for problem in problems[:PROBLEMS_LISTED_MAX]]
    if len(problems) > PROBLEMS_LISTED_MAX:
        listed.append(f"and {len(problems) - PROBLEMS_LISTED_MAX} more")
    return PermanentError(DeadLetterReason.INVALID_EVENT, "; ".join(listed))


def _why_not_json(parser_message: str, value: bytes) -> str:
    if not value:
        return "the value is empty (a tombstone has no value at all)"
    if value[0] == 0:
        return "the value starts with a zero byte: schema-registry framing is not supported, send plain JSON"
    if value.startswith(b"\xef\xbb\xbf"):
        return "the value starts with a byte order mark: send UTF-8 without one"
    return parser_message.removeprefix("Invalid JSON: ")


def _path(location: Sequence[str | int]) -> str:
    """`sources[3].text`; a name that the producer made up (a label's) is payload, and written as `*`."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "[key]":
            path += f".{part if part in KNOWN_FIELDS else '*'}"
    return path.removeprefix(".") or "event"


def _meaning(problem: ErrorDetails) -> str:
    pattern = problem.get("ctx", {}).get("pattern")
    return PATTERN_MEANINGS.get(pattern, problem["msg"]) if isinstance(pattern, str) else problem["msg"]
