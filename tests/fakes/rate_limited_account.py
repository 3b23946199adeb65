"""An account at a provider that enforces its limits by itself, written apart from the limiter's own arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from worker.core.buckets import MINUTE_NS, SECOND_NS
from worker.core.charging import Charge, Dimension
from worker.core.llm import CompletionUsage

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
OPENAI_NAMES = {Dimension.REQUESTS: "requests", Dimension.TOKENS: "tokens"}
ANTHROPIC_NAMES = {
    Dimension.REQUESTS: "requests",
    Dimension.TOKENS: "tokens",
    Dimension.INPUT_TOKENS: "input-tokens",
    Dimension.OUTPUT_TOKENS: "output-tokens",
}


@dataclass
class Allowance:
    """One limit: refills continuously, holds a minute's worth, may be overdrawn by what was let in before.

    `left_parts` counts parts of a token that refill at `per_minute` parts a nanosecond.
    """

    per_minute: int
    left_parts: int = field(init=False)
    at_ns: int = field(default=0, init=False)
    charges: list[tuple[int, int]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.left_parts = self.per_minute * MINUTE_NS

    def look(self, now_ns: int) -> int:
        """Whole tokens left."""
        refilled = self.left_parts + self.per_minute * (now_ns - self.at_ns)
        self.left_parts, self.at_ns = min(refilled, self.per_minute * MINUTE_NS), now_ns
        return self.left_parts // MINUTE_NS

    def charge(self, amount: int, now_ns: int) -> None:
        self.look(now_ns)
        self.left_parts = min(self.left_parts - amount * MINUTE_NS, self.per_minute * MINUTE_NS)
        self.charges.append((now_ns, amount))

    def until_ns(self, amount: int, now_ns: int) -> int:
        """How long until `amount` is left; 0 or less: it is."""
        self.look(now_ns)
        return -((self.left_parts - amount * MINUTE_NS) // self.per_minute)


@dataclass
class RateLimitedAccount:
    """Lets calls in or refuses them, and remembers both. Times in ns of the caller's clock."""

    charge: Charge
    per_minute: Mapping[Dimension, int]
    refused_at_ns: list[int] = field(default_factory=list, init=False)
    accepted: int = field(default=0, init=False)
    allowances: dict[Dimension, Allowance] = field(init=False)

    def __post_init__(self) -> None:
        self.allowances = {dimension: Allowance(limit) for dimension, limit in self.per_minute.items()}

    def arrive(self, now_ns: int, input_tokens: int, output_tokens_max: int) -> float | None:
        """None: let in. Otherwise refused, with the seconds after which it would be let in."""
        asked = _amounts(1, input_tokens, 0 if self.charge is Charge.AS_PRODUCED else output_tokens_max)
        # An exhausted limit lets nothing in, also if nothing of it is asked for yet.
        wait_ns = max(
            allowance.until_ns(max(asked[dimension], 1), now_ns) for dimension, allowance in self.allowances.items()
        )
        if wait_ns > 0:
            self.refused_at_ns.append(now_ns)
            return wait_ns / SECOND_NS
        for dimension, allowance in self.allowances.items():
            allowance.charge(asked[dimension], now_ns)
        self.accepted += 1
        return None

    def produce(self, now_ns: int, output_tokens: int) -> None:
        """Some output came out."""
        if self.charge is Charge.AS_PRODUCED:
            self._charge(_amounts(0, 0, output_tokens), now_ns)

    def complete(self, now_ns: int, input_tokens: int, output_tokens_max: int, usage: CompletionUsage) -> None:
        """The call is done."""
        if self.charge is Charge.CAP_REFUNDED:
            unused = _amounts(0, usage.input_tokens - input_tokens, usage.output_tokens - output_tokens_max)
            self._charge(unused, now_ns)

    def headers(self, now_ns: int) -> dict[str, str]:
        """What a response says, in the dialect of the provider that charges like this one."""
        if self.charge is Charge.AS_PRODUCED:
            return self._anthropic_headers(now_ns)
        said = {}
        for dimension, name in OPENAI_NAMES.items():
            if dimension in self.allowances:
                limit, left, reset_s = self._status(dimension, now_ns)
                said[f"x-ratelimit-limit-{name}"] = str(limit)
                said[f"x-ratelimit-remaining-{name}"] = str(left)
                said[f"x-ratelimit-reset-{name}"] = f"{int(reset_s // 60)}m{reset_s % 60:.3f}s"
        return said

    def _anthropic_headers(self, now_ns: int) -> dict[str, str]:
        now = EPOCH + timedelta(seconds=now_ns / SECOND_NS)
        said = {"Date": now.strftime("%a, %d %b %Y %H:%M:%S GMT")}
        for dimension, name in ANTHROPIC_NAMES.items():
            if dimension in self.allowances:
                limit, left, reset_s = self._status(dimension, now_ns)
                said[f"anthropic-ratelimit-{name}-limit"] = str(limit)
                said[f"anthropic-ratelimit-{name}-remaining"] = str(left)
                reset = now + timedelta(seconds=reset_s)
                said[f"anthropic-ratelimit-{name}-reset"] = reset.strftime("%Y-%m-%dT%H:%M:%SZ")
        return said

    def _status(self, dimension: Dimension, now_ns: int) -> tuple[int, int, float]:
        allowance = self.allowances[dimension]
        left = max(0, allowance.look(now_ns))
        return allowance.per_minute, left, allowance.until_ns(allowance.per_minute, now_ns) / SECOND_NS

    def _charge(self, amounts: Mapping[Dimension, int], now_ns: int) -> None:
        for dimension, allowance in self.allowances.items():
            if amounts[dimension]:
                allowance.charge(amounts[dimension], now_ns)


def _amounts(requests: int, input_tokens: int, output_tokens: int) -> dict[Dimension, int]:
    return {
        Dimension.REQUESTS: requests,
        Dimension.TOKENS: input_tokens + output_tokens,
        Dimension.INPUT_TOKENS: input_tokens,
        Dimension.OUTPUT_TOKENS: output_tokens,
    }
