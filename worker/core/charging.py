"""What a call costs against its limits: each provider's own rule, as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from worker.core.llm import CompletionUsage


class Dimension(StrEnum):
    """What is limited per minute; `tokens` is input and output together."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"


class Charge(StrEnum):
    """When and for what a provider charges a call."""

    CAP_AT_ADMISSION = "cap_at_admission"
    """Input and output cap when the request arrives, for good."""

    CAP_REFUNDED = "cap_refunded"
    """The same, and what was not used comes back when the call is done."""

    AS_PRODUCED = "as_produced"
    """Input when the request arrives, output while it is produced; the cap costs nothing."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A call before it is made. What it uses beyond the estimate is charged late, when it settles.

    Where output is charged as produced, `output_tokens_expected` may say that the cap is far from what will come: then
    only so much is reserved, more calls run at once, and the limit is kept as well as the expectation is.
    """

    input_tokens: int
    output_tokens_max: int
    output_tokens_expected: int | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Of one dimension: `on_arrival` is charged for good when the call arrives; of `open` whatever it really uses."""

    on_arrival: int
    open: int

    @property
    def tokens(self) -> int:
        """All of it."""
        return self.on_arrival + self.open


@dataclass(frozen=True, slots=True)
class ChargingRule:
    """How a provider charges calls against its limits."""

    charge: Charge
    cache_reads_charged: bool

    def reserve(self, estimate: Estimate) -> Mapping[Dimension, Reservation]:
        """What to keep for the call until it is settled: as much as it can be charged, or is expected to be."""
        most = _amounts(estimate.input_tokens, self._reserved_output(estimate))
        for_good = set(Dimension) if self.charge is Charge.CAP_AT_ADMISSION else {Dimension.REQUESTS}
        return {name: Reservation(n, 0) if name in for_good else Reservation(0, n) for name, n in most.items()}

    def _reserved_output(self, estimate: Estimate) -> int:
        if self.charge is not Charge.AS_PRODUCED or estimate.output_tokens_expected is None:
            return estimate.output_tokens_max
        return min(estimate.output_tokens_expected, estimate.output_tokens_max)

    def needed_at_admission(self, estimate: Estimate) -> Mapping[Dimension, int]:
        """What the provider itself must find in its buckets to let the call in."""
        counts_cap = self.charge is not Charge.AS_PRODUCED
        return _amounts(estimate.input_tokens, estimate.output_tokens_max if counts_cap else 0)

    def used(self, usage: CompletionUsage) -> Mapping[Dimension, int]:
        """What the tokens that were really used are charged."""
        read = usage.cache_read_tokens if self.cache_reads_charged else 0
        input_tokens = usage.input_tokens + usage.cache_write_tokens + read
        return _amounts(input_tokens, usage.output_tokens + usage.reasoning_tokens)


def _amounts(input_tokens: int, output_tokens: int) -> dict[Dimension, int]:
    return {
        Dimension.REQUESTS: 1,
        Dimension.TOKENS: input_tokens + output_tokens,
        Dimension.INPUT_TOKENS: input_tokens,
        Dimension.OUTPUT_TOKENS: output_tokens,
    }


OPENAI_CHARGING: Final = ChargingRule(Charge.CAP_AT_ADMISSION, cache_reads_charged=True)
"""Its rate-limit guide: the larger of the cap and the estimated tokens counts when the request arrives."""

ANTHROPIC_CHARGING: Final = ChargingRule(Charge.AS_PRODUCED, cache_reads_charged=False)
"""Its rate-limit guide: output counts as it is produced, the cap does not; cache reads do not, on most models."""
