"""What a measured process is asked to do and what it answers, both as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from tests.benchmarks.line_events import FULL_SIZE, EventShape
from worker.settings import Settings

What = Literal["line", "bare", "commits"]


@dataclass(frozen=True, slots=True)
class Task:
    """One run."""

    what: What
    events: int
    shape: EventShape = FULL_SIZE
    overrides: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    judge_s: float = 0.0
    relayed: bool = True
    """Else the outbox is left as it is."""
    profiled: bool = False

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> "Task":
        given = json.loads(text)
        return cls(**given | {"shape": EventShape(**given["shape"])})

    def settings(self) -> Settings:
        return Settings().overridden(self.overrides)


@dataclass(slots=True)
class Result:
    """What was measured; a run leaves what it does not measure as it is."""

    events: int = 0
    busy_s: float = 0.0
    published_s: float = 0.0
    """From the first record's start to the last acknowledgement of a message."""
    cpu_s: float = 0.0
    memory_bytes: list[int] = field(default_factory=list)
    """After the first twentieth of the events, the second, and so on to the last."""
    latencies_s: list[float] = field(default_factory=list)
    samples: dict[str, int] = field(default_factory=dict)
    """Of the processor time, by step."""

    @property
    def events_per_s(self) -> float:
        return self.events / self.busy_s

    @property
    def cpu_us(self) -> float:
        """Processor time of one event."""
        return self.cpu_s / self.events * 1e6

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> "Result":
        return cls(**json.loads(text))
