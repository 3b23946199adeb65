"""How one LLM call can fail, in our words: what it means for the record, the provider and the bill."""

from dataclasses import dataclass
from enum import StrEnum


class CallFailure(StrEnum):
    """A closed set; each value says who is at fault, and so what happens next."""

    THROTTLED = "throttled"  # 429: the account's rate limit
    OVERLOADED = "overloaded"  # 503, 529: the provider's own limit
    TRANSIENT = "transient"  # other 5xx, resets, time-outs, bodies that are no JSON
    QUOTA = "quota"  # the account has no money left: waits for an operator, loses nothing
    DENIED = "denied"  # 401, 403, 404: the key, the account or the model's name is wrong
    REFUSED = "refused"  # the provider will not judge this content
    REJECTED = "rejected"  # 400, 413, 422: this request will never do


@dataclass(frozen=True, slots=True)
class CallProblem:
    """A failed call: `response_lost` when it may have been billed although no response arrived."""

    failure: CallFailure
    detail: str
    status: int | None = None
    retry_after: str | None = None
    response_lost: bool = False
    raw: str | None = None
