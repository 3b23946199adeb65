"""The words of the matrix: the steps of the line, the faults that can meet them, and how that may end."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


class Step(Enum):
    """In the order of an event's path; `LLM` steps are those of judging by a language model."""

    DECODE = "decode"
    FIND = "find"
    JUDGE = "judge, local"
    LOOK = "LLM: look for responses"
    INTENT = "LLM: record the intent"
    CALL = "LLM: call the provider"
    RESPONSE = "LLM: record the response"
    USAGE = "LLM: add up the usage"
    CREDIT = "credit"
    ENCODE = "encode"
    SAVE = "save"
    DEAD_LETTER = "save a dead letter"
    CLAIM = "outbox: claim"
    PUBLISH = "outbox: publish"
    DELETE = "outbox: delete"
    COMMIT = "commit offsets"

    @property
    def is_llm(self) -> bool:
        return self.value.startswith("LLM")


class Fault(Enum):
    """What happens at the step. Where it writes nothing to a database, `LOST_BEFORE` is before the request has
    arrived and `LOST_AFTER` before its answer has.
    """

    OWN = "the record's own fault"  # RetryableError
    OUTAGE = "an outage"  # UnavailableError
    BUG = "a bug"  # RuntimeError
    HANG = "never returns"
    STOP = "stopped in it"  # the drain's budget ends, and the step is cancelled
    KILL = "killed at it"  # SIGKILL of a real process
    LOST_BEFORE = "connection lost before COMMIT"
    LOST_AFTER = "connection lost after COMMIT"
    KILL_BEFORE = "killed before COMMIT"
    KILL_AFTER = "killed after COMMIT"

    @property
    def kills(self) -> bool:
        return self in {Fault.KILL, Fault.KILL_BEFORE, Fault.KILL_AFTER}


class Ending(Enum):
    """What the worker that met the fault did. Whatever that was, every record has one outcome in the end, once."""

    RETRIED = "run again; one attempt used"
    WAITED = "waited out; no attempt used"
    REPEATED = "done again at once; no attempt used"
    RECOMMITTED = "counted; committed again"
    STOPPED = "worker stopped; the next one finishes"
    HANDED_ON = "cancelled at the end of the drain; the next worker finishes"
    DIED = "the next worker finishes"
    UNLIVE = "loop stands still, /livez gives no answer: killed; the next worker finishes"


@dataclass(frozen=True, slots=True)
class NoCell:
    """Why this fault cannot meet this step."""

    why: str


@dataclass(frozen=True, slots=True)
class Did:
    """What can be seen of the worker that met the fault."""

    finished: bool = False
    attempts_used: int = 0
    waited_out: bool = False
    commits_failed: bool = False
    raised: bool = False
    died: bool = False
    stood_still: bool = False


SEEN: Mapping[Ending, Did] = {
    Ending.RETRIED: Did(finished=True, attempts_used=1),
    Ending.WAITED: Did(finished=True, waited_out=True),
    Ending.REPEATED: Did(finished=True),
    Ending.RECOMMITTED: Did(finished=True, commits_failed=True),
    Ending.STOPPED: Did(raised=True),
    Ending.HANDED_ON: Did(),
    Ending.DIED: Did(died=True),
    Ending.UNLIVE: Did(stood_still=True),
}


Row: TypeAlias = Mapping[Fault, Ending | NoCell]


def row(*cells: Ending | NoCell) -> Row:
    """One for each fault, in their order."""
    return dict(zip(Fault, cells, strict=True))


def table(matrix: Mapping[Step, Row]) -> str:
    """The matrix as text, a line a cell."""
    lines = []
    for step, cells in matrix.items():
        lines.append(step.value)
        for fault, ending in cells.items():
            told = f"– {ending.why}" if isinstance(ending, NoCell) else ending.value
            lines.append(f"    {fault.value:<32}{told}")
    return "\n".join(lines)
