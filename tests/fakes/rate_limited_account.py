"""An account at a provider that enforces its limits by itself, written apart from the limiter's own arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction

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
    """One limit: refills continuously, holds a minute's worth, may be overdrawn by what was let in before."""

    per_minute: int
    left: Fraction = field(init=False)
    at_s: Fraction = field(default=Fraction(0), init=False)
    charges: list[tuple[Fraction, int]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.left = Fraction(self.per_minute)

    def look(self, now_s: Fraction) -> Fraction:
        self.left = min(self.left + self.per_minute * (now_s - self.at_s) / 60, Fraction(self.per_minute))
        self.at_s = now_s
        return self.left

    def charge(self, amount: int, now_s: Fraction) -> None:
        self.look(now_s)
        self.left = min(self.left - amount, Fraction(self.per_minute))
        self.charges.append((now_s, amount))


@dataclass
class RateLimitedAccount:
    """Lets calls in or refuses them, and remembers both. Times in seconds of the caller's clock."""

    charge: Charge
    per_minute: Mapping[Dimension, int]
    refused_at_s: list[Fraction] = field(default_factory=list, init=False)
    accepted: int = field(default=0, init=False)
    allowances: dict[Dimension, Allowance] = field(init=False)

    def __post_init__(self) -> None:
        self.allowances = {dimension: Allowance(limit) for dimension, limit in self.per_minute.items()}

    def arrive(self, now_s: Fraction, input_tokens: int, output_tokens_max: int) -> float | None:
        """None: let in. Otherwise refused, with the seconds after which it would be let in."""
        output = 0 if self.charge is Charge.AS_PRODUCED else output_tokens_max
        asked = _amounts(1, input_tokens, output)
        short_s = [
            (asked[dimension] - allowance.look(now_s)) * 60 / allowance.per_minute
            for dimension, allowance in self.allowances.items()
            if allowance.look(now_s) < max(asked[dimension], 1)
        ]
        if short_s:
            self.refused_at_s.append(now_s)
            return max(0.0, *map(float, short_s))
        for dimension, allowance in self.allowances.items():
            allowance.charge(asked[dimension], now_s)
        self.accepted += 1
        return None

    def produce(self, now_s: Fraction, output_tokens: int) -> None:
        """Some output came out."""
        if self.charge is Charge.AS_PRODUCED:
            self._charge(_amounts(0, 0, output_tokens), now_s)

    def complete(self, now_s: Fraction, input_tokens: int, output_tokens_max: int, usage: CompletionUsage) -> None:
        """The call is done."""
        if self.charge is Charge.CAP_REFUNDED:
            unused = _amounts(0, usage.input_tokens - input_tokens, usage.output_tokens - output_tokens_max)
            self._charge(unused, now_s)

    def headers(self, now_s: Fraction) -> dict[str, str]:
        """What a response says, in the dialect of the provider that charges like this one."""
        if self.charge is Charge.AS_PRODUCED:
            return self._anthropic_headers(now_s)
        said = {}
        for dimension, name in OPENAI_NAMES.items():
            if dimension in self.allowances:
                limit, left, reset_s = self._status(dimension, now_s)
                said[f"x-ratelimit-limit-{name}"] = str(limit)
                said[f"x-ratelimit-remaining-{name}"] = str(left)
                said[f"x-ratelimit-reset-{name}"] = f"{int(reset_s // 60)}m{float(reset_s % 60):.3f}s"
        return said

    def _anthropic_headers(self, now_s: Fraction) -> dict[str, str]:
        now = EPOCH + timedelta(seconds=float(now_s))
        said = {"Date": now.strftime("%a, %d %b %Y %H:%M:%S GMT")}
        for dimension, name in ANTHROPIC_NAMES.items():
            if dimension in self.allowances:
                limit, left, reset_s = self._status(dimension, now_s)
                said[f"anthropic-ratelimit-{name}-limit"] = str(limit)
                said[f"anthropic-ratelimit-{name}-remaining"] = str(left)
                reset = now + timedelta(seconds=float(reset_s))
                said[f"anthropic-ratelimit-{name}-reset"] = reset.strftime("%Y-%m-%dT%H:%M:%SZ")
        return said

    def _status(self, dimension: Dimension, now_s: Fraction) -> tuple[int, int, Fraction]:
        allowance = self.allowances[dimension]
        left = max(Fraction(0), allowance.look(now_s))
        return allowance.per_minute, int(left), (allowance.per_minute - left) * 60 / allowance.per_minute

    def _charge(self, amounts: Mapping[Dimension, int], now_s: Fraction) -> None:
        for dimension, allowance in self.allowances.items():
            if amounts[dimension]:
                allowance.charge(amounts[dimension], now_s)


def _amounts(requests: int, input_tokens: int, output_tokens: int) -> dict[Dimension, int]:
    return {
        Dimension.REQUESTS: requests,
        Dimension.TOKENS: input_tokens + output_tokens,
        Dimension.INPUT_TOKENS: input_tokens,
        Dimension.OUTPUT_TOKENS: output_tokens,
    }
