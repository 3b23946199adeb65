"""An API's own words for calls, completions, errors and limits."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

from worker.core.llm import CompletionUsage
from worker.embedded.llm_emulator.model_rules import ModelRules
from worker.embedded.llm_emulator.nouns import Api, Call, ErrorKind, HttpRequest, RefusedError, Spoken
from worker.embedded.llm_emulator.rate_limits import BucketState, Exceeded, Limited

Json = Mapping[str, Any]
RulesOf = Callable[[str], ModelRules]


class Wire(Protocol):
    """One API."""

    @property
    def api(self) -> Api: ...

    def key(self, request: HttpRequest) -> str | None:
        """The API key that came with the request."""
        ...

    def call(self, body: Json, request: HttpRequest, rules_of: RulesOf) -> Call:
        """What is asked.

        Raises:
            RefusedError: the API would not take it.
        """
        ...

    def error(self, refused: RefusedError, request_id: str, key: str | None) -> tuple[int, Json]:
        """Status and body."""
        ...

    def exceeded(self, exceeded: Exceeded, model: str) -> RefusedError:
        """How the API says that a limit is reached."""
        ...

    def completion(
        self, call: Call, spoken: Spoken, usage: CompletionUsage, completion_id: str, created: datetime
    ) -> dict[str, Any]: ...

    def completion_id(self, number: int) -> str: ...

    def finish(self, *, is_cut: bool) -> str:
        """The usual end, or that of a reply that reached its cap."""
        ...

    def headers(self, request_id: str) -> Json: ...

    def limit_headers(self, states: Mapping[Limited, BucketState], now: datetime) -> Json: ...

    def retry_headers(self, wait_s: float) -> Json: ...


def text_of(content: object, text_types: frozenset[str], where: str) -> str:
    """A message's content: a string, or parts that are texts."""
    if isinstance(content, str):
        return content
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    if not parts or not all(part.get("type") in text_types for part in parts):
        raise RefusedError(ErrorKind.INVALID, f"{where}: only text is taken here")
    return "\n\n".join(str(part.get("text", "")) for part in parts)


def output_cap(value: object, name: str, rules: ModelRules, model: str) -> int:
    """The cap on a reply's tokens, if it is one that the model takes."""
    if type(value) is not int or value < 1:
        raise RefusedError(ErrorKind.INVALID, f"{name}: must be an integer of at least 1", param=name)
    if value > rules.output_tokens_max:
        message = f"{name}: {value} > {rules.output_tokens_max}, which is the most that {model} gives"
        raise RefusedError(ErrorKind.INVALID, message, param=name, code="invalid_value")
    return value
