"""Chance that repeats: what is drawn for a request follows from the seed, its content and how often it came."""

import hashlib
import math
import struct
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Chances:
    """Numbers drawn evenly from (0, 1), one for each thing that chance decides."""

    fault: float
    latency: float
    reasoning: float

    @classmethod
    def of(cls, seed: int, content: bytes, nth: int) -> "Chances":
        """Concurrent requests arrive in any order: so neither time nor order decides, only what is asked."""
        digest = hashlib.blake2b(content, digest_size=24, key=struct.pack(">qq", seed, nth)).digest()
        return cls(*((draw + 0.5) / 2**64 for draw in struct.unpack(">QQQ", digest)))


class Spread(Protocol):
    """How a quantity is distributed."""

    def at(self, chance: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same."""

    value: float = 0.0

    def at(self, chance: float) -> float:  # noqa: ARG002  # chance decides nothing here
        return self.value


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Half of all below `median`; `sigma` 0.5 has one in twenty above 2.3 medians."""

    median: float
    sigma: float

    def at(self, chance: float) -> float:
        return self.median * math.exp(self.sigma * NORMAL.inv_cdf(chance))


def spread_of(text: str) -> Spread:
    """`2`, or `lognormal:MEDIAN,SIGMA`.

    Raises:
        ValueError: it is neither, or negative.
    """
    kind, _, rest = text.rpartition(":")
    numbers = [float(number) for number in rest.split(",")]
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise ValueError(f"{text}: not finite numbers of at least 0")
    match kind, numbers:
        case "", [value]:
            return Fixed(value)
        case "lognormal", [median, sigma]:
            return Lognormal(median, sigma)
    raise ValueError(f"{text}: say a number, or lognormal:MEDIAN,SIGMA")
