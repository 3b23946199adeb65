"""What each fault does to a call."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final

from worker.embedded.llm_emulator import spoiling
from worker.embedded.llm_emulator.faults import Fault
from worker.embedded.llm_emulator.nouns import ErrorKind, Spoken

IN_TWO_SECONDS = "an HTTP date two seconds ahead"


@dataclass(frozen=True, slots=True)
class Refuses:
    """No work, no bill: an error in the API's words, or a proxy's."""

    kind: ErrorKind
    retry_after: str | None = None
    status: int | None = None
    is_html: bool = False


class Delivery(StrEnum):
    """What becomes of the bytes of a response."""

    WHOLE = "whole"
    SLOW = "slow"
    CLOSE_AFTER = "close_after"
    TRUNCATED = "truncated"
    RESET = "reset"
    SILENCE = "silence"


@dataclass(frozen=True, slots=True)
class Delivers:
    """The work is done, unless `works` is False; the response comes so."""

    delivery: Delivery
    works: bool = True


@dataclass(frozen=True, slots=True)
class Replaces:
    """The work is done, and something else is sent in the place of the body."""

    body: Callable[[bytes], bytes]
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Says:
    """The work is done and delivered, but the model says something else."""

    edit: Callable[[Spoken], Spoken]
    status: int = 200


@dataclass(frozen=True, slots=True)
class Miscounts:
    """The work is done and delivered; the body's `usage` is this, or absent."""

    usage: Mapping[str, object] | None = None
    is_absent: bool = False


Effect = Refuses | Delivers | Replaces | Says | Miscounts


def _finishes(word: str | None) -> Says:
    return Says(lambda spoken: replace(spoken, finish=word))


def _is_cut(word: str) -> Says:
    return Says(lambda spoken: replace(spoken, finish=word, text=spoiling.cut_short(spoken.text or "")))


def _calls_tools(word: str) -> Says:
    return Says(lambda spoken: replace(spoken, finish=word, text=None, has_tool_calls=True))


def _refused(spoken: Spoken) -> Spoken:
    return replace(spoken, text=None, refusal="I'm sorry, I can't assist with that request.")


def _spoiled(spoil: spoiling.Spoil, spoken: Spoken) -> Spoken:
    # Only what it understood can a model answer wrongly.
    return spoken if spoken.stage is None or spoken.text is None else replace(spoken, text=spoil(spoken.text))


def _says(spoil: spoiling.Spoil) -> Says:
    return Says(partial(_spoiled, spoil))


HTML = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"

EFFECTS: Final[Mapping[Fault, Effect]] = {
    Fault.RATE_LIMITED: Refuses(ErrorKind.RATE_LIMIT),
    Fault.RATE_LIMITED_0: Refuses(ErrorKind.RATE_LIMIT, "0"),
    Fault.RATE_LIMITED_1: Refuses(ErrorKind.RATE_LIMIT, "1"),
    Fault.RATE_LIMITED_130: Refuses(ErrorKind.RATE_LIMIT, "130"),
    Fault.RATE_LIMITED_DATE: Refuses(ErrorKind.RATE_LIMIT, IN_TWO_SECONDS),
    Fault.RATE_LIMITED_GARBAGE: Refuses(ErrorKind.RATE_LIMIT, "soon, ½ minute (NaN)"),
    Fault.INSUFFICIENT_QUOTA: Refuses(ErrorKind.QUOTA),
    Fault.BILLING: Refuses(ErrorKind.BILLING),
    Fault.SERVER_ERROR: Refuses(ErrorKind.SERVER),
    Fault.BAD_GATEWAY_HTML: Refuses(ErrorKind.SERVER, status=502, is_html=True),
    Fault.UNAVAILABLE: Refuses(ErrorKind.UNAVAILABLE),
    Fault.OVERLOADED: Refuses(ErrorKind.OVERLOADED),
    Fault.OVERLOADED_IN_200: Refuses(ErrorKind.OVERLOADED, status=200),
    Fault.REQUEST_TIMEOUT: Refuses(ErrorKind.TIMEOUT),
    Fault.UNAUTHORIZED: Refuses(ErrorKind.UNAUTHORIZED),
    Fault.FORBIDDEN: Refuses(ErrorKind.FORBIDDEN),
    Fault.NOT_FOUND: Refuses(ErrorKind.NOT_FOUND),
    Fault.TOO_LARGE: Refuses(ErrorKind.TOO_LARGE),
    Fault.INVALID: Refuses(ErrorKind.INVALID),
    Fault.CONTENT_FILTER_400: Refuses(ErrorKind.CONTENT_FILTER),
    Fault.REDIRECT: Refuses(ErrorKind.NOT_FOUND, status=307, is_html=True),
    Fault.RESET_BEFORE_WORK: Delivers(Delivery.RESET, works=False),
    Fault.RESET_AFTER_WORK: Delivers(Delivery.RESET),
    Fault.SILENCE: Delivers(Delivery.SILENCE),
    Fault.TRUNCATED_BODY: Delivers(Delivery.TRUNCATED),
    Fault.CUT_JSON: Replaces(lambda body: body[: len(body) // 2]),
    Fault.EMPTY_BODY: Replaces(lambda _: b""),
    Fault.HTML_BODY: Replaces(lambda _: HTML, "text/html"),
    Fault.JSON_ARRAY_BODY: Replaces(lambda body: b"[" + body + b"]"),
    Fault.NAN_BODY: Replaces(lambda body: body.replace(b'"usage":', b'"score":NaN,"usage":', 1)),
    Fault.SLOW_BODY: Delivers(Delivery.SLOW),
    Fault.CLOSE_AFTER: Delivers(Delivery.CLOSE_AFTER),
    Fault.COMPLETION_IN_400: Says(lambda spoken: replace(spoken, text=None, finish="content_filter"), status=400),
    Fault.FINISH_LENGTH: _is_cut("length"),
    Fault.FINISH_MAX_TOKENS: _is_cut("max_tokens"),
    Fault.FINISH_CONTEXT_WINDOW: _is_cut("model_context_window_exceeded"),
    Fault.FINISH_CONTENT_FILTER: _finishes("content_filter"),
    Fault.FINISH_REFUSAL: _finishes("refusal"),
    Fault.FINISH_TOOL_CALLS: _calls_tools("tool_calls"),
    Fault.FINISH_TOOL_USE: _calls_tools("tool_use"),
    Fault.FINISH_FUNCTION_CALL: _calls_tools("function_call"),
    Fault.FINISH_PAUSE_TURN: _finishes("pause_turn"),
    Fault.FINISH_STOP_SEQUENCE: _finishes("stop_sequence"),
    Fault.FINISH_UNHEARD_OF: _finishes("unheard_of"),
    Fault.FINISH_NULL: _finishes(None),
    Fault.REFUSAL_MESSAGE: Says(_refused),
    Fault.CONTENT_NULL: Says(lambda spoken: replace(spoken, text=None)),
    Fault.NO_CHOICES: Says(lambda spoken: replace(spoken, text=None, has_choices=False)),
    Fault.USAGE_MISSING: Miscounts(is_absent=True),
    Fault.USAGE_NULL: Miscounts(),
    Fault.USAGE_ZERO: Miscounts({"prompt_tokens": 0, "completion_tokens": 0, "input_tokens": 0, "output_tokens": 0}),
    Fault.USAGE_SENSELESS: Miscounts(
        {"prompt_tokens": -5, "completion_tokens": "many", "input_tokens": True, "output_tokens": 1e18}
    ),
    Fault.FENCED: _says(spoiling.fenced),
    Fault.AMID_PROSE: _says(spoiling.amid_prose),
    Fault.TWO_OBJECTS: _says(spoiling.two_objects),
    Fault.MESSAGE_CUT: _says(spoiling.cut_short),
    Fault.MESSAGE_EMPTY: _says(spoiling.empty),
    Fault.MESSAGE_NOT_JSON: _says(spoiling.not_json),
    Fault.WRONG_SCHEMA: _says(spoiling.wrong_schema),
    Fault.ARRAY_AT_THE_TOP: _says(spoiling.array_at_the_top),
    Fault.NUL: _says(spoiling.nul),
    Fault.NUL_ESCAPED: _says(spoiling.nul_escaped),
    Fault.LONE_SURROGATE: _says(spoiling.lone_surrogate),
    Fault.LONE_SURROGATE_ESCAPED: _says(spoiling.lone_surrogate_escaped),
    Fault.HUGE: _says(spoiling.huge),
    Fault.DEEP: _says(spoiling.deep),
    Fault.DUPLICATE_NAMES: _says(spoiling.duplicate_names),
    Fault.WRONG_IDS: _says(spoiling.wrong_ids),
    Fault.MISSING_CELLS: _says(spoiling.missing_cells),
    Fault.EXTRA_CELLS: _says(spoiling.extra_cells),
    Fault.DUPLICATE_CELLS: _says(spoiling.duplicate_cells),
    Fault.OUT_OF_RANGE: _says(spoiling.out_of_range),
    Fault.NEGATIVE_SCORES: _says(spoiling.negative_scores),
    Fault.NAN_SCORES: _says(spoiling.nan_scores),
    Fault.INFINITE_SCORES: _says(spoiling.infinite_scores),
    Fault.SCORES_IN_WORDS: _says(spoiling.scores_in_words),
    Fault.NO_SCORES: _says(spoiling.no_scores),
    Fault.INVENTED_QUOTES: _says(spoiling.invented_quotes),
    Fault.NO_QUOTES: _says(spoiling.no_quotes),
}
