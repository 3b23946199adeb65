"""Which request has which fault: by chance, by its number, or put in line."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from worker.core.llm import Stage
from worker.embedded.llm_emulator.faults import Fault


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """`chances`: how often each fault strikes, 0..1; `at`: the fault of the request of this number, from 0.

    Raises:
        ValueError: a chance is not one, or all together are more than 1.
    """

    chances: Mapping[Fault, float] = field(default_factory=dict)
    at: Mapping[int, Fault] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not all(0 <= chance <= 1 for chance in self.chances.values()) or sum(self.chances.values()) > 1:
            raise ValueError("the chances of faults must lie within 0..1, and so must their sum")

    def of(self, number: int, drawn: float) -> Fault | None:
        """The fault of a request; `drawn` from (0, 1)."""
        if number in self.at:
            return self.at[number]
        for fault, chance in self.chances.items():
            drawn -= chance
            if drawn < 0:
                return fault
        return None


class FaultLine:
    """Faults put in line for the next requests, of any stage or of one; None stands for a request without one."""

    def __init__(self) -> None:
        self._next: dict[Stage | None, deque[Fault | None]] = {}

    def put(self, faults: Iterable[Fault | None], stage: Stage | None) -> None:
        self._next.setdefault(stage, deque()).extend(faults)

    def take(self, stage: Stage | None) -> tuple[bool, Fault | None]:
        """Whether something was in line, and what; a stage's own line comes first."""
        for line in (self._next.get(stage), self._next.get(None)):
            if line:
                return True, line.popleft()
        return False, None


def fault_plan_of(text: str) -> FaultPlan:
    """`NAME=CHANCE` and `NUMBER:NAME`, with commas between.

    Raises:
        ValueError: it is neither, or no fault has that name.
    """
    chances: dict[Fault, float] = {}
    at: dict[int, Fault] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        if "=" in item:
            name, _, chance = item.partition("=")
            chances[Fault(name)] = float(chance)
        else:
            number, separator, name = item.partition(":")
            if not separator:
                raise ValueError(f"{item}: say NAME=CHANCE, or NUMBER:NAME")
            at[int(number)] = Fault(name)
    return FaultPlan(chances, at)
