"""Everything that can go wrong with a call, by name."""

from enum import StrEnum


class Fault(StrEnum):
    """The name is what the command line and the bill call it."""

    # Refused before any work: never billed.
    RATE_LIMITED = "rate_limited"  # 429 without a Retry-After
    RATE_LIMITED_0 = "rate_limited_0"  # 429, Retry-After: 0
    RATE_LIMITED_1 = "rate_limited_1"
    RATE_LIMITED_130 = "rate_limited_130"
    RATE_LIMITED_DATE = "rate_limited_date"  # … an HTTP date two seconds ahead
    RATE_LIMITED_GARBAGE = "rate_limited_garbage"
    INSUFFICIENT_QUOTA = "insufficient_quota"
    BILLING = "billing"  # 402
    SERVER_ERROR = "server_error"  # 500
    BAD_GATEWAY_HTML = "bad_gateway_html"  # 502 from a proxy, in HTML
    UNAVAILABLE = "unavailable"  # 503
    OVERLOADED = "overloaded"  # 529
    OVERLOADED_IN_200 = "overloaded_in_200"  # the body of a 529 under a 200
    REQUEST_TIMEOUT = "request_timeout"  # 408
    UNAUTHORIZED = "unauthorized"  # 401, quoting the key that it got
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    TOO_LARGE = "too_large"  # 413
    INVALID = "invalid"  # 400
    CONTENT_FILTER_400 = "content_filter_400"  # Azure's, and Anthropic's blocked output
    REDIRECT = "redirect"  # 307

    # The response does not arrive.
    RESET_BEFORE_WORK = "reset_before_work"  # not billed
    RESET_AFTER_WORK = "reset_after_work"
    SILENCE = "silence"  # worked for, and never answered
    TRUNCATED_BODY = "truncated_body"  # fewer bytes than announced
    CUT_JSON = "cut_json"  # as many bytes as announced, half of the JSON
    EMPTY_BODY = "empty_body"
    HTML_BODY = "html_body"  # 200
    JSON_ARRAY_BODY = "json_array_body"
    NAN_BODY = "nan_body"

    # It arrives, in its own way.
    SLOW_BODY = "slow_body"
    CLOSE_AFTER = "close_after"  # closes the connection after a response that did not announce it
    COMPLETION_IN_400 = "completion_in_400"  # Azure: a filtered completion, with usage, under a 400

    # The model ends otherwise than by being done; the API's own word follows `finish_`.
    FINISH_LENGTH = "finish_length"
    FINISH_MAX_TOKENS = "finish_max_tokens"
    FINISH_CONTEXT_WINDOW = "finish_model_context_window_exceeded"
    FINISH_CONTENT_FILTER = "finish_content_filter"
    FINISH_REFUSAL = "finish_refusal"
    FINISH_TOOL_CALLS = "finish_tool_calls"
    FINISH_TOOL_USE = "finish_tool_use"
    FINISH_FUNCTION_CALL = "finish_function_call"
    FINISH_PAUSE_TURN = "finish_pause_turn"
    FINISH_STOP_SEQUENCE = "finish_stop_sequence"
    FINISH_UNHEARD_OF = "finish_unheard_of"
    FINISH_NULL = "finish_null"
    REFUSAL_MESSAGE = "refusal_message"  # the usual end, but the message is a refusal

    # It is done, but the body lacks something.
    CONTENT_NULL = "content_null"
    NO_CHOICES = "no_choices"
    USAGE_MISSING = "usage_missing"
    USAGE_NULL = "usage_null"
    USAGE_ZERO = "usage_zero"
    USAGE_SENSELESS = "usage_senseless"

    # It is done, and the message is spoiled.
    FENCED = "fenced"
    AMID_PROSE = "amid_prose"
    TWO_OBJECTS = "two_objects"
    MESSAGE_CUT = "message_cut"
    MESSAGE_EMPTY = "message_empty"
    MESSAGE_NOT_JSON = "message_not_json"
    WRONG_SCHEMA = "wrong_schema"
    ARRAY_AT_THE_TOP = "array_at_the_top"
    NUL = "nul"
    NUL_ESCAPED = "nul_escaped"
    LONE_SURROGATE = "lone_surrogate"
    LONE_SURROGATE_ESCAPED = "lone_surrogate_escaped"
    HUGE = "huge"  # 2 MB
    DEEP = "deep"
    DUPLICATE_NAMES = "duplicate_names"
    WRONG_IDS = "wrong_ids"
    MISSING_CELLS = "missing_cells"
    EXTRA_CELLS = "extra_cells"
    DUPLICATE_CELLS = "duplicate_cells"
    OUT_OF_RANGE = "out_of_range"
    NEGATIVE_SCORES = "negative_scores"
    NAN_SCORES = "nan_scores"
    INFINITE_SCORES = "infinite_scores"
    SCORES_IN_WORDS = "scores_in_words"
    NO_SCORES = "no_scores"
    INVENTED_QUOTES = "invented_quotes"
    NO_QUOTES = "no_quotes"
