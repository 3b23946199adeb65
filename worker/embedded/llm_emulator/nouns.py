"""What both APIs have in common, once their own words are taken off: a call, what is said, why one is refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from worker.core.llm import Stage


class Api(StrEnum):
    """Whose wire format."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request as received; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the prompt; `is_breakpoint` when Anthropic's cache_control marks its end."""

    text: str
    is_breakpoint: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """What a client asks of a model.

    `segments` are the whole prompt in the order in which a provider caches it: schema, instructions, message.
    `message` is the user's alone, `schema` the reply's, as compact JSON or in words among the instructions.
    """

    api: Api
    model: str
    segments: tuple[Segment, ...]
    message: str
    schema: str
    output_tokens_max: int


@dataclass(frozen=True, slots=True)
class Spoken:
    """What the model says. `finish` in the API's own word; None for `text` when it says nothing."""

    stage: Stage | None
    text: str | None
    finish: str | None
    refusal: str | None = None
    has_tool_calls: bool = False
    has_choices: bool = True


class ErrorKind(StrEnum):
    """Why a call is refused; each API has its own status and body for it."""

    RATE_LIMIT = "rate_limit"
    QUOTA = "quota"
    BILLING = "billing"
    SERVER = "server"
    UNAVAILABLE = "unavailable"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    TOO_LARGE = "too_large"
    INVALID = "invalid"
    CONTENT_FILTER = "content_filter"


class RefusedError(Exception):
    """The API refuses the call; nothing is billed. `named`: `param`, `code` and `type` where OpenAI names them."""

    headers: Mapping[str, str] = MappingProxyType({})

    def __init__(self, kind: ErrorKind, message: str | None = None, **named: str) -> None:
        super().__init__(message or kind.value)
        self.kind = kind
        self.message = message
        self.named = named
